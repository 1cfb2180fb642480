// A producer of confluent-kafka-go, which is librdkafka, that sends until its standard input ends, then closes normally.
//
// Arguments: bootstrap servers, a topic, a client id.
package main

import (
	"io"
	"log"
	"os"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func main() {
	topic := os.Args[2]
	producer, err := kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": os.Args[1], "client.id": os.Args[3], "client.rack": "rack-1",
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for range producer.Events() {
		}
	}()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	message := &kafka.Message{
		TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Value: []byte("record"),
	}
	for {
		select {
		case <-ended:
			producer.Flush(5000)
			producer.Close()
			return
		case <-time.After(50 * time.Millisecond):
			_ = producer.Produce(message, nil)
		}
	}
}
