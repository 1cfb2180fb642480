// A producer or consumer of confluent-kafka-go that works until its standard input ends, then closes normally.
//
// Arguments: producer or consumer, and a file of key=value lines; keys that begin with `driver.` are its own, the others
// go to the library. One JSON object a line tells what it does: started, closing, closed.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func tell(event string) {
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"event": event}); err != nil {
		log.Fatal(err)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	own, settings := map[string]string{}, kafka.ConfigMap{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(key, "driver.") {
			own[key] = value
		} else {
			settings[key] = value
		}
	}
	closing := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closing)
	}()
	pause, err := time.ParseDuration(own["driver.pause_ms"] + "ms")
	if err != nil {
		log.Fatal(err)
	}
	if os.Args[1] == "producer" {
		produce(settings, own["driver.topic"], pause, closing)
	} else {
		consume(settings, own["driver.topic"], closing)
	}
	tell("closed")
}

func produce(settings kafka.ConfigMap, topic string, pause time.Duration, closing chan struct{}) {
	producer, err := kafka.NewProducer(&settings)
	if err != nil {
		log.Fatal(fmt.Errorf("kafka: %w", err))
	}
	go func() {
		for range producer.Events() {
		}
	}()
	tell("started")
	for running := true; running; {
		for range 10 {
			message := kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Value: make([]byte, 100)}
			if err := producer.Produce(&message, nil); err != nil {
				log.Print(err)
			}
		}
		select {
		case <-closing:
			running = false
		case <-time.After(pause):
		}
	}
	tell("closing")
	producer.Flush(5000)
	producer.Close()
}

func consume(settings kafka.ConfigMap, topic string, closing chan struct{}) {
	consumer, err := kafka.NewConsumer(&settings)
	if err != nil {
		log.Fatal(fmt.Errorf("kafka: %w", err))
	}
	if err := consumer.Subscribe(topic, nil); err != nil {
		log.Fatal(err)
	}
	tell("started")
	for {
		select {
		case <-closing:
			tell("closing")
			if err := consumer.Close(); err != nil {
				log.Print(err)
			}
			return
		default:
			consumer.Poll(100)
		}
	}
}
