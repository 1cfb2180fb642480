import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A Kafka client that runs until its standard input ends, then closes normally.
 *
 * <p>Arguments: producer, consumer or admin, and a properties file: {@code driver.*} are this program's settings, the rest
 * are the client's. It prints JSON objects, one per line: {@code started} (when its client instance id is known), {@code
 * done} (all records sent or consumed), {@code closing} (its own counts and metrics) and {@code closed}.
 */
public final class TelemetryClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    static final CountDownLatch closing = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        Properties settings = settings(arguments[1]);
        switch (arguments[0]) {
            case "producer" -> produce(settings);
            case "consumer" -> consume(settings);
            case "admin" -> administer(settings);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Reads the client's settings, and starts the thread that waits for the end of the standard input. */
    static Properties settings(String file) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = new FileReader(file, StandardCharsets.UTF_8)) {
            settings.load(reader);
        }
        Thread input = new Thread(() -> {
            try (BufferedReader reader = new BufferedReader(new InputStreamReader(System.in))) {
                while (reader.readLine() != null) { }
            } catch (java.io.IOException e) {
                // a broken pipe counts as its end
            }
            closing.countDown();
        });
        input.setDaemon(true);
        input.start();
        return settings;
    }

    private static void produce(Properties settings) throws Exception {
        String topic = settings.getProperty("driver.topic");
        long records = Long.parseLong(settings.getProperty("driver.records"));
        double rate = Double.parseDouble(settings.getProperty("driver.rate"));
        byte[] value = new byte[Integer.parseInt(settings.getProperty("driver.value_bytes"))];
        AtomicLong acknowledged = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        AtomicReference<String> error = new AtomicReference<>();
        boolean transactional = settings.containsKey("transactional.id");
        long perTransaction = Long.parseLong(settings.getProperty("driver.transaction_records", "0"));
        long abortEvery = Long.parseLong(settings.getProperty("driver.abort_every", "0"));
        long ended = 0;
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            Thread identity = identify(producer::clientInstanceId);
            long sent = 0;
            long begun = System.nanoTime();
            while ((records < 0 || sent < records) && closing.getCount() > 0) {
                producer.send(new ProducerRecord<>(topic, value), (metadata, exception) -> {
                    if (exception == null) {
                        acknowledged.incrementAndGet();
                    } else {
                        failed.incrementAndGet();
                        error.set(exception.toString());
                    }
                });
                sent++;
                if (perTransaction > 0 && sent % perTransaction == 0) {
                    ended++;
                    if (abortEvery > 0 && ended % abortEvery == 0) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                    producer.beginTransaction();
                }
                if (rate > 0) {
                    long ahead = begun + (long) (sent / rate * 1e9) - System.nanoTime();
                    closing.await(ahead, TimeUnit.NANOSECONDS);
                }
            }
            producer.flush();
            if (transactional) {
                producer.commitTransaction();
            }
            print("done", "records", acknowledged.get(), "failed", failed.get(), "error", error.get());
            closing.await();
            identity.interrupt();
            print("closing", "records", acknowledged.get(), "failed", failed.get(), "error", error.get(),
                    "sums", sums(producer.metrics()));
        }
        print("closed");
    }

    private static void consume(Properties settings) throws Exception {
        long wanted = Long.parseLong(settings.getProperty("driver.records"));
        long records = 0;
        boolean identified = false;
        String error = null;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(settings.getProperty("driver.topic")));
            while (closing.getCount() > 0) {
                long before = records;
                try {
                    records += consumer.poll(Duration.ofMillis(100)).count();
                } catch (org.apache.kafka.common.errors.AuthenticationException e) {
                    error = e.toString();
                    closing.await();
                }
                if (before < wanted && records >= wanted) {
                    print("done", "records", records, "failed", 0, "error", null);
                }
                if (!identified) { // the classic consumer requests its id inside poll
                    try {
                        Uuid id = consumer.clientInstanceId(Duration.ofMillis(1));
                        if (id != null) {
                            identified = true;
                            print("started", "client_instance_id", id.toString());
                        }
                    } catch (TimeoutException e) {
                        // not yet
                    } catch (IllegalStateException e) {
                        identified = true; // enable.metrics.push=false
                        print("started", "client_instance_id", null);
                    }
                }
            }
            print("closing", "records", records, "failed", error == null ? 0 : 1, "error", error,
                    "sums", sums(consumer.metrics()));
        }
        print("closed");
    }

    private static void administer(Properties settings) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            Thread identity = identify(admin::clientInstanceId);
            while (!closing.await(200, TimeUnit.MILLISECONDS)) {
                admin.listTopics().names().get();
            }
            identity.interrupt();
            print("closing", "records", 0, "failed", 0, "error", null, "sums", sums(admin.metrics()));
        }
        print("closed");
    }

    /** Prints the client instance id when the broker has assigned it; null if the client's telemetry is off. */
    private static Thread identify(Function<Duration, Uuid> clientInstanceId) {
        Thread thread = new Thread(() -> {
            try {
                Uuid id = clientInstanceId.apply(Duration.ofDays(1));
                print("started", "client_instance_id", id == null ? null : id.toString());
            } catch (IllegalStateException e) {
                print("started", "client_instance_id", null);
            } catch (RuntimeException e) {
                // interrupted at close, before the broker assigned an id
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** A client's counters under the names and attributes with which KIP-714 pushes them, plus client_id. */
    static List<Map<String, Object>> sums(Map<MetricName, ? extends Metric> metrics) {
        List<Map<String, Object>> sums = new ArrayList<>();
        metrics.forEach((name, metric) -> {
            if (metric instanceof KafkaMetric kafkaMetric && kafkaMetric.isMeasurable()
                    && (kafkaMetric.measurable() instanceof CumulativeSum
                            || kafkaMetric.measurable() instanceof WindowedCount)) {
                Map<String, String> attributes = new LinkedHashMap<>();
                name.tags().forEach((key, value) -> attributes.put(key.toLowerCase(Locale.ROOT).replace('-', '_'), value));
                String group = name.group().toLowerCase(Locale.ROOT).replace('-', '.').replace(".metrics", "");
                String metricName = "org.apache.kafka." + group + "." + name.name().toLowerCase(Locale.ROOT).replace('-', '.');
                sums.add(Map.of("metric", metricName, "attributes", attributes, "value", metric.metricValue()));
            }
        });
        return sums;
    }

    static synchronized void print(String event, Object... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }
}
