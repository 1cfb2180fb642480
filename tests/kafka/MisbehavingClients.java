import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Clients that do what the findings are about, one behaviour each, and healthy ones; client ids are
 * {@code telemetry-<behaviour>}. Prints {@code done} once each had its time, then goes on until it is killed,
 * or its input ends: to close a throttled producer takes as long as its records do.
 *
 * <p>Argument: a file of properties: bootstrap.servers, driver.seconds.
 */
public final class MisbehavingClients {
    private static String servers;

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = new FileReader(arguments[0])) {
            settings.load(reader);
        }
        servers = settings.getProperty("bootstrap.servers");
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException e) {
                // the pipe is gone: close too
            }
            Runtime.getRuntime().halt(0);
        });
        input.setDaemon(true);
        input.start();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers, "enable.metrics.push", "false"))) {
            admin.createTopics(List.of(
                    topic("misbehaving", Map.of()),
                    topic("misbehaving-small", Map.of("max.message.bytes", "200")))).all().get();
            backlog();
            List<Thread> threads = List.of(
                    start(() -> produce("healthy_producer", "misbehaving", 100, 10, 50,
                            Map.of("linger.ms", "20", "compression.type", "lz4"))),
                    start(() -> consume("healthy_consumer", "healthy", 0, Map.of())),
                    start(() -> produce("failed_records", "misbehaving-small", 1000, 1, 200, Map.of())),
                    start(() -> produce("one_record_per_request", "misbehaving", 100, 1, 20,
                            Map.of("linger.ms", "0", "batch.size", "1"))),
                    start(() -> produce("full_batches", "misbehaving", 100, 2000, 200,
                            Map.of("batch.size", "8192", "buffer.memory", "32768", "linger.ms", "20"))),
                    start(() -> produce("buffer_full", "misbehaving", 1000, 100, 200,
                            Map.of("buffer.memory", "16384", "max.block.ms", "0"))),
                    start(() -> produce("throttled", "misbehaving", 1000, 20, 100, Map.of())),
                    start(() -> produce("connection_churn", "misbehaving", 100, 1, 500,
                            Map.of("connections.max.idle.ms", "100"))),
                    start(() -> consume("processing_bound", "slow", 100, Map.of("max.poll.records", "1"))),
                    start(() -> consume("unstable_group", "unstable", 0, Map.of())),
                    start(MisbehavingClients::neighbours),
                    start(MisbehavingClients::shortLived));
            threads.get(threads.size() - 2).join();
            threads.get(threads.size() - 1).join();
            TimeUnit.SECONDS.sleep(Long.parseLong(settings.getProperty("driver.seconds")));
            System.out.println("{\"event\": \"done\"}");
            input.join();
        }
    }

    /** A consumer that is slow tells the lag that its first fetch saw, until it has worked that off. */
    private static void backlog() {
        try (KafkaProducer<byte[], byte[]> producer = producer("backlog", Map.of("enable.metrics.push", "false"))) {
            for (int i = 0; i < 20_000; i++) {
                producer.send(new ProducerRecord<>("misbehaving", new byte[10]));
            }
        }
    }

    /** Sends a burst of records, waits, and so on. */
    private static void produce(
            String behaviour, String topic, int bytes, int burst, long pauseMs, Map<String, Object> changes)
            throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(behaviour, changes)) {
            while (true) {
                for (int i = 0; i < burst; i++) {
                    try {
                        producer.send(new ProducerRecord<>(topic, new byte[bytes]));
                    } catch (KafkaException e) {
                        // as an application that ignores it
                    }
                }
                TimeUnit.MILLISECONDS.sleep(pauseMs);
            }
        }
    }

    /** Polls, and takes its time for what it got. */
    private static void consume(String behaviour, String group, long pauseMs, Map<String, Object> changes)
            throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(behaviour, group, changes)) {
            while (true) {
                consumer.poll(Duration.ofMillis(100));
                TimeUnit.MILLISECONDS.sleep(pauseMs);
            }
        }
    }

    /** Members of the unstable group that come and go. */
    private static void neighbours() throws Exception {
        for (int i = 0; i < 4; i++) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer("neighbour", "unstable", Map.of())) {
                for (int polls = 0; consumer.assignment().isEmpty() && polls < 300; polls++) {
                    consumer.poll(Duration.ofMillis(100));
                }
            }
            TimeUnit.MILLISECONDS.sleep(300);
        }
    }

    /** A producer for every task. */
    private static void shortLived() throws Exception {
        for (int i = 0; i < 12; i++) {
            try (KafkaProducer<byte[], byte[]> producer = producer("short_lived_clients", Map.of())) {
                producer.send(new ProducerRecord<>("misbehaving", new byte[100])).get();
                TimeUnit.MILLISECONDS.sleep(700);
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String behaviour, Map<String, Object> changes) {
        return new KafkaProducer<>(settings(behaviour, changes), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String behaviour, String group, Map<String, Object> changes) {
        Map<String, Object> settings = settings(behaviour, changes);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of("misbehaving"));
        return consumer;
    }

    private static Map<String, Object> settings(String behaviour, Map<String, Object> changes) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", servers, "client.id", "telemetry-" + behaviour));
        settings.putAll(changes);
        return settings;
    }

    private static NewTopic topic(String name, Map<String, String> configs) {
        return new NewTopic(name, 2, (short) 1).configs(configs);
    }

    private static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                e.printStackTrace();
            }
        });
        thread.start();
        return thread;
    }
}
