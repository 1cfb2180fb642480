#!/bin/bash
# franz-go takes "*", by which Kafka's brokers ask for all metrics, as the beginning of a name: its pushes have no metric.
#
# Version: franz-go v1.22.3, its stand-in broker kfake v0.0.0-20260918054303-01f206a7e32c, Go 1.26 or newer
# Behaviour: a subscription with "*" makes the broker send the one name "*", which Java's client and librdkafka know. franz-go's
#   client pushes at each interval all the same: 20 bytes with its own name and no metric. The
#   protocol's text names the empty text for "all"; that franz-go takes, and so do the two others.
# Right: the same metrics for "*", the empty text and the common prefix.
# Output (2026-11-27):
#   asked for "*": 0 metrics in the first push
#   asked for "": 2 metrics in the first push
#   asked for "org.apache.kafka.": 2 metrics in the first push
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > main.go <<'E'
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	for _, metrics := range []string{"*", "", "org.apache.kafka."} {
		fmt.Printf("asked for %q: %d metrics in the first push\n", metrics, strings.Count(push(metrics), "org.apache.kafka."))
	}
}

// The first push of a client that is asked for these metrics.
func push(metrics string) string {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	pushes := make(chan string, 100)
	cluster.ControlKey(71, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := request.ResponseKind().(*kmsg.GetTelemetrySubscriptionsResponse)
		answer.ClientInstanceID = [16]byte{15: 1}
		answer.SubscriptionID = 1
		answer.AcceptedCompressionTypes = []int8{0}
		answer.PushIntervalMillis = 1000
		answer.TelemetryMaxBytes = 1 << 20
		answer.DeltaTemporality = true
		answer.RequestedMetrics = []string{metrics}
		return answer, nil, true
	})
	cluster.ControlKey(72, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		pushes <- string(request.(*kmsg.PushTelemetryRequest).Metrics)
		return request.ResponseKind(), nil, true
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if err := client.ProduceSync(context.Background(), kgo.StringRecord("x")).FirstErr(); err != nil {
		panic(err)
	}
	return <-pushes
}
E
go mod init star 2> warnings
go get github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c 2>> warnings
go mod tidy 2>> warnings
go run . | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
