#!/bin/bash
# franz-go goes on pushing with a codec that the broker has refused: it logs that it asks for its subscription again, and doesn't.
#
# Version: franz-go v1.22.3, its stand-in broker kfake v0.0.0-20260918054303-01f206a7e32c, Go 1.26 or newer
# Behaviour: the answer UNSUPPORTED_COMPRESSION_TYPE to a push is logged ("re-getting our subscription information"), and the next
#   push has the same codec an interval later, and so on until something else makes it ask. So what the client counts is
#   refused for good, where the list of accepted codecs has changed.
# Right: KIP-714: it asks for the subscription at once, as it does after UNKNOWN_SUBSCRIPTION_ID, for the codecs that are left.
# Output (2026-11-28):
#   UNSUPPORTED_COMPRESSION_TYPE: 3 more pushes, 3 with the refused codec; asked for the subscription 0 times
#   UNKNOWN_SUBSCRIPTION_ID: 3 more pushes, 0 with the refused codec; asked for the subscription 1 times
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
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const zstd, gzip = 4, 1

func main() {
	for _, refusal := range []*kerr.Error{kerr.UnsupportedCompressionType, kerr.UnknownSubscriptionID} {
		try(refusal)
	}
}

// The codec of the next push.
func next(codecs chan int8) int8 {
	select {
	case codec := <-codecs:
		return codec
	case <-time.After(30 * time.Second):
		panic("no push came")
	}
}

// The broker accepts zstd in its first answer and gzip alone from then on, and refuses each push with zstd.
func try(refusal *kerr.Error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	asked := 0
	codecs := make(chan int8, 100)
	cluster.ControlKey(71, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := request.ResponseKind().(*kmsg.GetTelemetrySubscriptionsResponse)
		answer.ClientInstanceID = [16]byte{15: 1}
		answer.SubscriptionID = int32(asked)
		answer.AcceptedCompressionTypes = []int8{gzip}
		if asked == 0 {
			answer.AcceptedCompressionTypes = []int8{zstd}
		}
		answer.PushIntervalMillis = 1000
		answer.TelemetryMaxBytes = 1 << 20
		answer.DeltaTemporality = true
		answer.RequestedMetrics = []string{"org.apache.kafka."}
		asked++
		return answer, nil, true
	})
	cluster.ControlKey(72, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		codec := request.(*kmsg.PushTelemetryRequest).CompressionType
		codecs <- codec
		answer := request.ResponseKind().(*kmsg.PushTelemetryResponse)
		if codec == zstd {
			answer.ErrorCode = refusal.Code
		}
		return answer, nil, true
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if err := client.ProduceSync(context.Background(), kgo.StringRecord("x")).FirstErr(); err != nil {
		panic(err)
	}
	refused := next(codecs)
	again := 0
	for more := 0; more < 3; more++ {
		if next(codecs) == refused {
			again++
		}
	}
	fmt.Printf("%s: 3 more pushes, %d with the refused codec; asked for the subscription %d times\n", refusal.Message, again, asked-1)
}
E
go mod init codec 2> warnings
go get github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c 2>> warnings
go mod tidy 2>> warnings
go run . | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
