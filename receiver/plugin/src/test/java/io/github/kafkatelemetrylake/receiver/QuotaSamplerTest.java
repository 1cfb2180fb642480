package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Value;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Sensors as ClientQuotaManager registers them, in a registry like the broker's. */
@Timeout(60)
class QuotaSamplerTest {
    private final Metrics metrics = new Metrics();
    private final MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
    private final List<Producer<byte[], byte[]>> made = new ArrayList<>();
    private final QuotaSampler sampler = sampler("quotas.topic", "q");

    private QuotaSampler sampler(String... settings) {
        QuotaSampler made = new QuotaSampler(Fakes.settings(settings), Fakes.broker(), () -> {
            this.made.add(producer);
            return producer;
        });
        metrics.addReporter(new Fakes.Reporter(made));
        return made;
    }

    @AfterEach
    void close() {
        metrics.close();
    }

    private MetricName name(String group, String name, String user, String clientId) {
        return metrics.metricName(name, group, "", Map.of("user", user, "client-id", clientId));
    }

    private static MetricConfig bound(double bound) {
        return new MetricConfig().quota(Quota.upperBound(bound));
    }

    /** The rate's sensor; it does not check its quota. */
    private Sensor rate(String group, String user, String clientId, double bound) {
        Sensor sensor = metrics.sensor(group + "-" + user + ":" + clientId);
        String name = group.equals("Request") ? "request-time" : "byte-rate";
        sensor.add(name(group, name, user, clientId), new Value(), bound(bound));
        return sensor;
    }

    private Sensor throttleTime(String group, String user, String clientId) {
        Sensor sensor = metrics.sensor(group + "ThrottleTime-" + user + ":" + clientId);
        sensor.add(name(group, "throttle-time", user, clientId), new Avg());
        return sensor;
    }

    /** The samples sent so far, without their common fields, sorted by text. */
    private List<String> samples() {
        return producer.history().stream()
                .map(record -> new String(record.value(), StandardCharsets.UTF_8))
                .map(json -> json.replaceFirst("^.*\"time_ms\":\\d+,", ""))
                .sorted().collect(Collectors.toList());
    }

    @Test
    void samplesThatAreNeverAcknowledgedAreBoundedAndCountAsLost() {
        MockProducer<byte[], byte[]> silent = Fakes.mockProducer(false);
        QuotaSampler sampler = new QuotaSampler(Fakes.settings(), Fakes.broker(), () -> silent);
        metrics.addReporter(new Fakes.Reporter(sampler));
        String user = "u".repeat(9_000);
        for (int i = 0; i < 100; i++) {
            rate("Produce", user, "app-" + i, 10).record(1, 0, false);
        }
        int sweeps = 0;
        while (sampler.lost() == 0 && sweeps < 100) {
            sampler.sweep();
            sweeps++;
        }

        int inFlight = silent.history().size();
        assertTrue(inFlight * 9_000L <= QuotaSampler.IN_FLIGHT_BYTES && inFlight * 10_000L > QuotaSampler.IN_FLIGHT_BYTES * 9 / 10);
        assertEquals(100 * sweeps - inFlight, sampler.lost());
        assertFalse(silent.closed());
        while (silent.completeNext()) {
            continue;
        }
        assertEquals(inFlight, sampler.landed());
        assertEquals(0, sampler.inFlightBytes());
        sampler.sweep();
        assertEquals(inFlight + 100, silent.history().size());
        assertEquals(100 * sweeps - inFlight, sampler.lost());
    }

    @Test
    void jsonIsTheContract() {
        rate("Produce", "ann%3Dx", "app", 1_000_000).record(2_500_000.5, 0, false);
        throttleTime("Produce", "ann%3Dx", "app").record(120);
        long before = System.currentTimeMillis();
        sampler.sweep();

        String json = new String(producer.history().get(0).value(), StandardCharsets.UTF_8);
        assertEquals(
                "{\"version\":1,\"cluster_id\":\"3av1eYO0TP6eJFWzDROMnQ\",\"broker_id\":1,\"time_ms\":T,\"quota_type\":\"produce\","
                        + "\"user\":\"ann%3Dx\",\"client_id\":\"app\",\"observed_rate\":2500000.5,\"quota_limit\":1000000.0,"
                        + "\"throttle_time_ms\":120.0}",
                json.replaceFirst("(\"time_ms\":)\\d+", "$1T"));
        long time = Long.parseLong(json.replaceFirst("^.*\"time_ms\":(\\d+),.*$", "$1"));
        assertTrue(before <= time && time <= System.currentTimeMillis());
        assertEquals("q", producer.history().get(0).topic());
        assertEquals("1", new String(producer.history().get(0).key(), StandardCharsets.UTF_8));
    }

    @Test
    void eachTypeAndEntityIsSampledOnce() {
        rate("Produce", "", "app", 10).record(1, 0, false);
        rate("Fetch", "ann", "", 20).record(2, 0, false);
        rate("Request", "ann", "app", 30).record(3, 0, false);
        throttleTime("Request", "ann", "app");
        sampler.sweep();

        assertEquals(3, sampler.sensors());
        assertEquals(List.of(
                "\"quota_type\":\"fetch\",\"user\":\"ann\",\"client_id\":\"\",\"observed_rate\":2.0,\"quota_limit\":20.0}",
                "\"quota_type\":\"produce\",\"user\":\"\",\"client_id\":\"app\",\"observed_rate\":1.0,\"quota_limit\":10.0}",
                "\"quota_type\":\"request\",\"user\":\"ann\",\"client_id\":\"app\",\"observed_rate\":3.0,\"quota_limit\":30.0}"),
                samples());
    }

    @Test
    void noLimitIsLeftOut() {
        rate("Produce", "", "unlimited", Long.MAX_VALUE);
        rate("Produce", "", "infinite", Double.POSITIVE_INFINITY);
        rate("Produce", "", "zero", 0);
        metrics.sensor("none").add(name("Produce", "byte-rate", "", "none"), new Value());
        sampler.sweep();

        assertEquals(
                List.of("infinite", "none", "unlimited", "zero"),
                samples().stream().map(json -> json.replaceFirst("^.*client_id\":\"(\\w+)\".*$", "$1")).collect(Collectors.toList()));
        assertEquals(
                List.of("\"quota_type\":\"produce\",\"user\":\"\",\"client_id\":\"zero\",\"observed_rate\":0.0,\"quota_limit\":0.0}"),
                samples().stream().filter(json -> json.contains("quota_limit")).collect(Collectors.toList()));
    }

    @Test
    void aChangedBoundIsTheNextSamples() {
        rate("Produce", "", "app", 10);
        sampler.sweep();
        metrics.metric(name("Produce", "byte-rate", "", "app")).config(bound(99));  // as ClientQuotaManager.updateQuota
        sampler.sweep();

        assertTrue(samples().get(0).endsWith("\"quota_limit\":10.0}"), samples().toString());
        assertTrue(samples().get(1).endsWith("\"quota_limit\":99.0}"), samples().toString());
    }

    @Test
    void nanIsNoSample() {
        throttleTime("Fetch", "", "idle");
        rate("Fetch", "", "broken", 5).record(Double.NaN, 0, false);
        sampler.sweep();
        assertEquals(List.of(), samples());

        throttleTime("Fetch", "", "broken").record(7);
        sampler.sweep();
        assertEquals(
                List.of("\"quota_type\":\"fetch\",\"user\":\"\",\"client_id\":\"broken\",\"quota_limit\":5.0,\"throttle_time_ms\":7.0}"),
                samples());
        assertEquals(0, sampler.lost());
    }

    /** Kafka's average is over its last 30 to 60 s. */
    @Test
    void anAverageThatNothingWasAddedToIsNoSample() {
        Sensor rate = rate("Produce", "", "app", 10);
        Sensor throttleTime = throttleTime("Produce", "", "app");
        throttleTime.record(100);
        sampler.sweep();
        sampler.sweep();
        throttleTime.record(200);
        sampler.sweep();
        rate.record(10, 0, false);
        sampler.sweep();

        String sample = "\"quota_type\":\"produce\",\"user\":\"\",\"client_id\":\"app\",\"observed_rate\":%s,\"quota_limit\":10.0%s}";
        assertEquals(
                List.of(
                        String.format(sample, "0.0", ",\"throttle_time_ms\":100.0"),
                        String.format(sample, "0.0", ",\"throttle_time_ms\":150.0"),
                        String.format(sample, "0.0", ""),
                        String.format(sample, "10.0", ",\"throttle_time_ms\":150.0")),
                samples());
    }

    @Test
    void otherMetricsAreNotSampled() {
        metrics.sensor("a").add(metrics.metricName("queue-size", "Produce"), new Value());
        metrics.sensor("b").add(metrics.metricName("exempt-request-time", "Request"), new Value());
        metrics.sensor("c").add(metrics.metricName("request-time", "Request"), new Value());
        metrics.sensor("d").add(name("ControllerMutation", "tokens", "ann", ""), new Value());
        metrics.sensor("e").add(name("Produce", "request-time", "ann", ""), new Value());
        sampler.sweep();

        assertEquals(0, sampler.sensors());
        assertEquals(List.of(), samples());
    }

    @Test
    void sensorsComeAndGo() {
        rate("Produce", "", "early", 5);
        QuotaSampler late = sampler("quotas.topic", "late");  // gets the present metrics by init
        assertEquals(1, late.sensors());
        rate("Produce", "", "app", 5);
        throttleTime("Produce", "", "app").record(1);
        assertEquals(2, late.sensors());

        metrics.removeSensor("Produce-:app");
        assertEquals(2, late.sensors());
        metrics.removeSensor("ProduceThrottleTime-:app");
        assertEquals(1, late.sensors());
        rate("Produce", "", "app", 6);
        late.sweep();
        assertTrue(samples().get(0).contains("\"client_id\":\"app\",\"observed_rate\":0.0,\"quota_limit\":6.0}"), samples().toString());
    }

    @Test
    void anyClientIdIsJson() {
        rate("Produce", "", "a\"b\\c\n\u0001\ud83d\ude00\ud800é", Long.MAX_VALUE);
        sampler.sweep();
        assertTrue(samples().get(0).contains("\"client_id\":\"a\\\"b\\\\c\\u000a\\u0001\\ud83d\\ude00\\ud800é\","), samples().get(0));
    }

    @Test
    void whatCannotLandIsCountedAndEndsTheSweepsWaiting() {
        for (int i = 0; i < 5; i++) {
            rate("Produce", "", "app" + i, 5);
        }
        producer.sendException = new KafkaException("fatal");
        sampler.sweep();
        assertEquals(5, sampler.lost());
        assertEquals(1, made.size());  // one attempt, not five
        assertTrue(producer.closed());

        MockProducer<byte[], byte[]> withoutTopic = new MockProducer<>(true, null, new ByteArraySerializer(), new ByteArraySerializer()) {
            @Override
            public synchronized Future<RecordMetadata> send(ProducerRecord<byte[], byte[]> record, Callback callback) {
                callback.onCompletion(null, new TimeoutException("no metadata"));
                return CompletableFuture.failedFuture(new TimeoutException("no metadata"));
            }
        };
        QuotaSampler waiting = new QuotaSampler(Fakes.settings(), Fakes.broker(), () -> {
            made.add(withoutTopic);
            return withoutTopic;
        });
        metrics.addReporter(new Fakes.Reporter(waiting));
        waiting.sweep();
        assertEquals(5, waiting.lost());
        assertEquals(2, made.size());
        assertTrue(withoutTopic.closed());

        MockProducer<byte[], byte[]> slow = Fakes.mockProducer(false);
        QuotaSampler next = new QuotaSampler(Fakes.settings(), Fakes.broker(), () -> slow);
        metrics.addReporter(new Fakes.Reporter(next));
        next.sweep();
        slow.completeNext();
        slow.errorNext(new TimeoutException("too late"));
        assertEquals(1, next.landed());
        assertEquals(1, next.lost());
    }

    @Test
    void aSensorThatFailsCostsItsOwnSampleOnly() {
        metrics.addMetric(name("Produce", "byte-rate", "", "bad"), (config, now) -> {
            throw new IllegalStateException("no value");
        });
        rate("Produce", "", "good", 5);
        sampler.sweep();
        assertEquals(1, sampler.lost());
        assertEquals(1, sampler.landed());
    }

    @Test
    void samplesEachIntervalUntilClosed() throws Exception {
        QuotaSampler started = sampler("quotas.interval.ms", "100");
        rate("Produce", "", "app", 5);
        started.start();
        Fakes.await(() -> started.landed() >= 3);
        started.close();
        long landed = started.landed();
        Thread.sleep(250);
        assertEquals(landed, started.landed());
        assertTrue(producer.closed());
    }

    @Test
    void switchedOffItSamplesNothing() throws Exception {
        QuotaSampler off = sampler("quotas.interval.ms", "100", "quotas.enabled", "false");
        rate("Produce", "", "app", 5);
        off.start();
        Thread.sleep(250);
        off.close();
        assertEquals(0, off.landed());
    }

    @ParameterizedTest
    @CsvSource({"0, 5000", "4000, 11000", "5000, 10000", "4999, 10001", "5001, 9999", "12000, 13000", "10000, 5000"})
    void sweepsAreInTheMiddleOfTheClocksIntervals(long nowMs, long untilMs) {
        assertEquals(untilMs, QuotaSampler.untilNextSweepMs(nowMs, 10_000));
    }
}
