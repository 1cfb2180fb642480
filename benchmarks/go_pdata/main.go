// Command go_pdata measures the OpenTelemetry Collector's decoder: pdata's ProtoUnmarshaler over a file of payloads,
// each preceded by its length (4 bytes, little endian). It prints one JSON object: the data points of one pass, and
// the CPU-seconds of each timed pass (user and system time of the process, so the garbage collector counts).
//
//	GOMAXPROCS=1 go run . <file> <passes>
package main

import (
	"encoding/binary"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"syscall"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	passes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	var payloads [][]byte
	for len(data) > 0 {
		size := binary.LittleEndian.Uint32(data)
		payloads = append(payloads, data[4:4+size])
		data = data[4+size:]
	}
	points := decode(payloads) // warm-up
	seconds := make([]float64, passes)
	for i := range seconds {
		before := cpuSeconds()
		decode(payloads)
		seconds[i] = cpuSeconds() - before
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"points": points, "seconds": seconds}); err != nil {
		log.Fatal(err)
	}
}

func decode(payloads [][]byte) int {
	var unmarshaler pmetric.ProtoUnmarshaler
	points := 0
	for _, payload := range payloads {
		metrics, err := unmarshaler.UnmarshalMetrics(payload)
		if err != nil {
			log.Fatal(err)
		}
		points += metrics.DataPointCount()
	}
	return points
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
