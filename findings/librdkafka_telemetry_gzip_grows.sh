#!/bin/bash
# librdkafka "compresses" its telemetry with gzip at level 0: the push is larger than without.
#
# Version: confluent-kafka 2.16.1 (librdkafka 2.16.0), franz-go's stand-in broker kfake v0.0.0-20260918054303-01f206a7e32c, Go
#   1.26 or newer
# Behaviour: where a broker or a proxy accepts gzip before other codecs, librdkafka announces compression type 1 and sends
#   a gzip member that holds the payload stored, as it is, with a header and a trailer. telemetry.max.bytes bounds that, so
#   what was chosen to save bytes costs some. zstd, first in the list of stock brokers, does compress.
# Right: fewer bytes than without.
# Output (2026-11-27):
#   none: as without
#   gzip: 23 bytes more than without; the payload stands in it as it is
#   zstd: less than a third
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1
mkdir broker
cd broker
cat > main.go <<'E'
// A broker that asks for all metrics with the codec of its first argument, and prints each push in hexadecimal digits.
package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	codec, _ := strconv.Atoi(os.Args[1])
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		panic(err)
	}
	cluster.ControlKey(71, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := request.ResponseKind().(*kmsg.GetTelemetrySubscriptionsResponse)
		answer.ClientInstanceID = [16]byte{15: 1}
		answer.SubscriptionID = 1
		answer.AcceptedCompressionTypes = []int8{int8(codec)}
		answer.PushIntervalMillis = 500
		answer.TelemetryMaxBytes = 1 << 20
		answer.DeltaTemporality = true
		answer.RequestedMetrics = []string{"*"}
		return answer, nil, true
	})
	cluster.ControlKey(72, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		fmt.Println(hex.EncodeToString(request.(*kmsg.PushTelemetryRequest).Metrics))
		return request.ResponseKind(), nil, true
	})
	fmt.Println(cluster.ListenAddrs()[0])
	os.Stdin.Read(make([]byte, 1))
}
E
go mod init broker 2> warnings
go get github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c 2>> warnings
go mod tidy 2>> warnings
go build -o broker .
cd ..
cat > ask.py <<'E'
import subprocess
import zlib

from confluent_kafka import Producer


def first_push(codec: int) -> bytes:
    with subprocess.Popen(
        ["broker/broker", str(codec)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        producer = Producer({"bootstrap.servers": broker.stdout.readline().strip(), "client.id": "c", "log_level": 3})
        producer.produce("t", b"x")
        producer.flush(10)
        push = bytes.fromhex(broker.stdout.readline())
        broker.stdin.close()
    return push


plain, gzip, zstd = first_push(0), first_push(1), first_push(4)
print("none:", "as without" if b"org.apache.kafka." in plain else "?")
payload = zlib.decompress(gzip, 31)
more = len(gzip) - len(payload)
print(f"gzip: {more} bytes more than without;", "the payload stands in it as it is" if payload in gzip else "")
print("zstd:", "less than a third" if len(zstd) * 3 < len(plain) else f"{len(zstd)} of {len(plain)}")
E
venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
