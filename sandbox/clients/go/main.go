// A franz-go producer or consumer that works until its standard input ends, then closes normally.
//
// Arguments: producer or consumer, and a file of key=value lines. One JSON object a line tells what it does:
// started, done (all records sent or consumed), closing (what it counted itself), closed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

type driver struct {
	settings        map[string]string
	records, failed atomic.Int64
	lastError       atomic.Pointer[string]
	closing         context.Context
}

func (d *driver) number(key string) float64 {
	value, err := strconv.ParseFloat(d.settings[key], 64)
	if err != nil {
		log.Fatalf("%s: %v", key, err)
	}
	return value
}

func (d *driver) tell(event string) {
	line := map[string]any{
		"event": event, "records": d.records.Load(), "failed": d.failed.Load(), "error": d.lastError.Load(),
	}
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		log.Fatal(err)
	}
}

func (d *driver) produce(client *kgo.Client) {
	topic, records, rate := d.settings["driver.topic"], int64(d.number("driver.records")), d.number("driver.rate")
	value := make([]byte, int(d.number("driver.value_bytes")))
	begun := time.Now()
	for sent := int64(0); (records < 0 || sent < records) && d.closing.Err() == nil; {
		client.Produce(d.closing, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			if err == nil {
				d.records.Add(1)
				return
			}
			d.failed.Add(1)
			text := err.Error()
			d.lastError.Store(&text)
		})
		sent++
		if rate > 0 {
			select {
			case <-time.After(time.Until(begun.Add(time.Duration(float64(sent) / rate * 1e9)))):
			case <-d.closing.Done():
			}
		}
	}
	_ = client.Flush(context.Background())
	d.tell("done")
	<-d.closing.Done()
}

func (d *driver) consume(client *kgo.Client) {
	wanted := int64(d.number("driver.records"))
	for d.closing.Err() == nil {
		before := d.records.Load()
		fetches := client.PollFetches(d.closing)
		if d.records.Add(int64(fetches.NumRecords())) >= wanted && before < wanted {
			d.tell("done")
		}
	}
}

func main() {
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	closing, end := context.WithCancel(context.Background())
	d := &driver{settings: map[string]string{}, closing: closing}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		d.settings[key] = value
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(d.settings["bootstrap.servers"], ",")...),
		kgo.ClientID(d.settings["client.id"]),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	}
	if user := d.settings["sasl.username"]; user != "" {
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: d.settings["sasl.password"]}.AsMechanism()))
	}
	if d.settings["driver.idle_ms"] != "" { // until it closes a connection that is not used
		options = append(options, kgo.ConnIdleTimeout(time.Duration(d.number("driver.idle_ms"))*time.Millisecond))
	}
	if os.Args[1] == "consumer" {
		options = append(options,
			kgo.ConsumerGroup(d.settings["group.id"]),
			kgo.ConsumeTopics(d.settings["driver.topic"]),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(fmt.Errorf("kgo: %w", err))
	}
	d.tell("started")
	if os.Args[1] == "consumer" {
		d.consume(client)
	} else {
		d.produce(client)
	}
	d.tell("closing")
	client.Close()
	d.tell("closed")
}
