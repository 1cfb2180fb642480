#!/bin/bash
# The OpenTelemetry Collector's cumulativetodelta drops a late point, yet counts on from it: the deltas exceed the increase.
#
# Version: cumulativetodeltaprocessor v0.165.1 (collector v1.71.0), Go 1.26 or newer
# Behaviour: of a cumulative sum with the points 100, 130, 120 (which is older than 130 and came after it) and 140, the third gives
#   nothing, but takes the place of the second as what the fourth is compared with. So the interval between them is counted
#   twice: 30 + 20, in two intervals that overlap. A message that a queue delivers out of order suffices.
# Right: 30 + 10, which is 140 - 100.
# Output (2026-11-27):
#   in order: 20 (10 s to 20 s), 10 (20 s to 30 s), 10 (30 s to 40 s): 40
#   third first: 30 (10 s to 30 s), nothing, 20 (20 s to 40 s): 50
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
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/cumulativetodeltaprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

type point struct {
	seconds int
	total   float64
}

func main() {
	begin := time.Now()
	convert("in order", begin, point{10, 100}, point{20, 120}, point{30, 130}, point{40, 140})
	convert("third first", begin, point{10, 100}, point{30, 130}, point{20, 120}, point{40, 140})
}

func convert(name string, begin time.Time, points ...point) {
	at := func(seconds int) pcommon.Timestamp {
		return pcommon.NewTimestampFromTime(begin.Add(time.Duration(seconds) * time.Second))
	}
	after := func(time pcommon.Timestamp) float64 { return time.AsTime().Sub(begin).Seconds() }
	said, sum := []string{}, 0.0
	next, _ := consumer.NewMetrics(func(_ context.Context, batch pmetric.Metrics) error {
		if batch.DataPointCount() == 0 {
			return nil
		}
		metric := batch.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
		for _, delta := range metric.Sum().DataPoints().All() {
			sum += delta.DoubleValue()
			text := fmt.Sprintf("%g (%g s to %g s)", delta.DoubleValue(), after(delta.StartTimestamp()), after(delta.Timestamp()))
			said = append(said, text)
		}
		return nil
	})
	factory := cumulativetodeltaprocessor.NewFactory()
	settings := processor.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: component.TelemetrySettings{
		Logger: zap.NewNop(), MeterProvider: metrics.NewMeterProvider(), TracerProvider: traces.NewTracerProvider(),
		Resource: pcommon.NewResource(),
	}}
	converter, err := factory.CreateMetrics(context.Background(), settings, factory.CreateDefaultConfig(), next)
	if err != nil {
		panic(err)
	}
	for number, each := range points {
		batch := pmetric.NewMetrics()
		metric := batch.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		metric.SetName("total")
		total := metric.SetEmptySum()
		total.SetIsMonotonic(true)
		total.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		one := total.DataPoints().AppendEmpty()
		one.SetStartTimestamp(at(0))
		one.SetTimestamp(at(each.seconds))
		one.SetDoubleValue(each.total)
		if err := converter.ConsumeMetrics(context.Background(), batch); err != nil {
			panic(err)
		}
		if number > 0 && len(said) < number {
			said = append(said, "nothing")
		}
	}
	fmt.Printf("%s: %s: %g\n", name, strings.Join(said, ", "), sum)
}
E
go mod init late 2> warnings
go get github.com/open-telemetry/opentelemetry-collector-contrib/processor/cumulativetodeltaprocessor@v0.165.1 2>> warnings
go mod tidy 2>> warnings
go run . | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
