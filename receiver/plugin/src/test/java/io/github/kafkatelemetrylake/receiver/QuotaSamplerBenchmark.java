package io.github.kafkatelemetrylake.receiver;

import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Rate;

/**
 * Prints the CPU cost of sampling 10,000 quota sensors, for the whole process; {@code docs/receiver.md} has the command.
 *
 * <p>With a broker's address as argument the samples land in its topic client-quotas, without one in a mock producer.
 */
final class QuotaSamplerBenchmark {
    private static final int SENSORS = 10_000;
    private static final int WARM_UP = 30;
    private static final int SWEEPS = 30;

    private QuotaSamplerBenchmark() {}

    public static void main(String[] args) throws Exception {
        LanderSettings settings = Fakes.settings("bootstrap.servers", args.length > 0 ? args[0] : "localhost:9092");
        List<Producer<byte[], byte[]>> producers = new ArrayList<>();
        QuotaSampler sampler = new QuotaSampler(settings, Fakes.broker(), () -> {
            producers.add(args.length > 0
                    ? settings.producer.create("quota-benchmark", QuotaSampler.MAX_BLOCK_MS)
                    : Fakes.mockProducer(true));
            return last(producers);
        });
        try (Metrics metrics = new Metrics()) {
            metrics.addReporter(new Fakes.Reporter(sampler));
            MetricConfig config = new MetricConfig().samples(11).quota(Quota.upperBound(1_000_000));
            for (int i = 0; i < SENSORS; i++) {
                Map<String, String> tags = Map.of("user", "user-" + i % 100, "client-id", "orders-service-producer-" + i);
                Sensor rate = metrics.sensor("rate-" + i);
                rate.add(metrics.metricName("byte-rate", "Produce", "", tags), new Rate(), config);
                rate.record(7 * i, System.currentTimeMillis(), false);
                Sensor throttleTime = metrics.sensor("throttle-" + i);
                throttleTime.add(metrics.metricName("throttle-time", "Produce", "", tags), new Avg());
                throttleTime.record(i % 50);
            }
            sweeps(sampler, producers, WARM_UP);
            double cpuMs = sweeps(sampler, producers, SWEEPS) / 1e6 / SWEEPS;
            System.out.printf("%d sensors: %.1f ms of CPU a sweep, %.2f %% of a core at 10 s; %d landed, %d lost%n",
                    sampler.sensors(), cpuMs, cpuMs / 100, sampler.landed(), sampler.lost());
        }
        System.exit(0);
    }

    /** The sampler creates another one after a rejected sample. */
    private static Producer<byte[], byte[]> last(List<Producer<byte[], byte[]>> producers) {
        return producers.get(producers.size() - 1);
    }

    /** CPU nanoseconds of all threads: the sampler's, and the producer's, which compress and send. */
    private static long sweeps(QuotaSampler sampler, List<Producer<byte[], byte[]>> producers, int count) throws Exception {
        com.sun.management.OperatingSystemMXBean process =
                (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long begin = process.getProcessCpuTime();
        for (int i = 0; i < count; i++) {
            sampler.sweep();
            last(producers).flush();
            Thread.sleep(100);
        }
        return process.getProcessCpuTime() - begin;
    }
}
