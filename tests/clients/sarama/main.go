// A sarama producer, which pushes no telemetry, that sends a record and then idles until its standard input ends.
//
// Arguments: producer, and a file of key=value lines, as of the franz-go driver. Prints {"event": "started"} once the record is acknowledged.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

func main() {
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		settings[key] = value
	}
	config := sarama.NewConfig()
	config.ClientID = settings["client.id"]
	config.Version = sarama.V4_0_0_0
	config.Net.SASL.Enable = true
	config.Net.SASL.User, config.Net.SASL.Password = settings["sasl.username"], settings["sasl.password"]
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(strings.Split(settings["bootstrap.servers"], ","), config)
	if err != nil {
		log.Fatal(err)
	}
	record := sarama.ProducerMessage{Topic: settings["driver.topic"], Value: sarama.StringEncoder("x")}
	if _, _, err := producer.SendMessage(&record); err != nil {
		log.Fatal(err)
	}
	fmt.Println(`{"event": "started"}`)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = producer.Close()
}
