#!/bin/bash
# A franz-go group that reads committed records never commits past aborted ones: a thousand of them are a lag for ever, where other libraries say none.
#
# Version: franz-go v1.22.3, kadm v1.20.0, Go 1.26 or newer; confluent-kafka 2.16.1 (librdkafka 2.16.0); kafka_2.13 4.4.0
# Behaviour: the topic has five records of a committed transaction, its marker, a thousand records of an aborted one, and its
#   marker: offsets 0 to 1006. franz-go commits the offset after the last record that it has given to the program, which is 5;
#   librdkafka's position, and so what it commits, moves over markers and aborted records to the end. kadm.Lag subtracts what is
#   committed from the end of the log. A group of franz-go that has read everything shows a lag of 1002, until the
#   next committed record; after a committed transaction alone it shows 1.
# Right: nothing is unread: 0.
# Output (2026-11-27):
#   librdkafka: read 5, committed 1007, the end is 1007
#   franz-go: read 5, committed 5, the end is 1007, lag 1002
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill "$broker" 2> /dev/null; wait; rm -rf "$work"' EXIT
cd "$work"

cat > pom.xml <<'E2'
<project><modelVersion>4.0.0</modelVersion><groupId>findings</groupId><artifactId>broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
</dependencies></project>
E2
mvn -q -B -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime \
  -DoutputDirectory=lib > warnings
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1
read -r port controller < <(python3 -c '
import socket
both = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in both))')
cat > server.properties <<E2
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
log.dirs=$work/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
E2
java -cp 'lib/*' kafka.tools.StorageTool format --standalone -t AAAAAAAAQAAAAAAAAAAAAA -c server.properties >> warnings 2>&1
java -Xmx300m -cp 'lib/*' kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > write_and_read.py <<'E2'
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers, topic = {"bootstrap.servers": sys.argv[1], "log_level": 0}, TopicPartition("t", 0)
admin = AdminClient(servers)
for created in admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=60).values():
    created.result()
producer = Producer(servers | {"transactional.id": "x"})
producer.init_transactions()
for records, end in ((5, producer.commit_transaction), (1000, producer.abort_transaction)):
    producer.begin_transaction()
    for _ in range(records):
        producer.produce("t", b"v")
    producer.flush()
    end()
group = servers | {"group.id": "librdkafka", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
consumer, read = Consumer(group), 0
consumer.subscribe(["t"])
ends = time.monotonic() + 60
while consumer.position([topic])[0].offset < 1007 and time.monotonic() < ends:
    message = consumer.poll(0.5)
    read += message is not None and message.error() is None
consumer.close()
consumer = Consumer(group)
committed, (_, end) = consumer.committed([topic])[0].offset, consumer.get_watermark_offsets(topic)
print(f"librdkafka: read {read}, committed {committed}, the end is {end}")
consumer.close()
E2
mkdir franz
cat > franz/main.go <<'E2'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ConsumerGroup("franz-go"), kgo.ConsumeTopics("t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		panic(err)
	}
	read := 0
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		client.PollFetches(ctx).EachRecord(func(*kgo.Record) { read++ })
		cancel()
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		panic(err)
	}
	lags, err := kadm.NewClient(client).Lag(context.Background(), "franz-go")
	if err != nil {
		panic(err)
	}
	for _, lag := range lags["franz-go"].Lag.Sorted() {
		fmt.Printf("franz-go: read %d, committed %d, the end is %d, lag %d\n", read, lag.Commit.At, lag.End.Offset, lag.Lag)
	}
	client.Close()
}
E2
cd franz
go mod init franz 2>> ../warnings
go get github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kadm@v1.20.0 2>> ../warnings
go mod tidy 2>> ../warnings
go build -o ../read .
cd ..
{ venv/bin/python write_and_read.py "127.0.0.1:$port" 2>> warnings; ./read "127.0.0.1:$port"; } | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
