import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Clients in one JVM, each of which follows its script until standard input ends. The scripts are JSON: {@link Script}. */
public final class ScriptedClients {
    /** What one client does; {@code scripted_librdkafka.py} reads the same. */
    static final class Script {
        public String kind;
        public Map<String, Object> settings;
        public List<String> topics = List.of();
        public int start_ms;
        /** How many clients of these settings follow one another, and how long each lives; 0: until the end. */
        public int lives = 1;
        public int life_ms;
        /** Between two bursts of records, or after a poll that returned records. */
        public long pause_ms;

        public int burst = 1;
        public int bytes = 100;
        public boolean random;
        /** Wait for the acknowledgement of each record. */
        public boolean sync;
        /** Records go to all partitions in turn. */
        public int partitions;
        /** With transactional.id: each burst is a transaction, and every so many of them are aborted. */
        public int abort_every;

        public boolean commit_each_poll;
        /** How long a poll waits for records. */
        public long poll_ms = 100;
        /** All partitions of its topics are assigned by hand: it is no member of its group. */
        public boolean by_hand;
        /** From then on its partitions are paused; 0: never. */
        public long paused_from_ms;
        /** A pause of the whole client, such as that of a virtual machine that is moved, as [when, how long]. */
        public long[] sleep_ms = {};
    }

    private static final long BEGIN = System.nanoTime();
    private static volatile boolean closing;

    public static void main(String[] arguments) throws Exception {
        Properties settings = TelemetryClient.settings(arguments[0]);
        ObjectMapper json = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);
        List<Script> scripts = Arrays.asList(json.readValue(new File(settings.getProperty("driver.scripts")), Script[].class));
        for (Script script : scripts) {
            Thread thread = new Thread(() -> follow(script));
            thread.setDaemon(true);
            thread.start();
        }
        TelemetryClient.print("started");
        TelemetryClient.closing.await();
        closing = true;
        TelemetryClient.print("closed");
        Runtime.getRuntime().halt(0); // to close a throttled producer takes as long as its records do
    }

    private static void follow(Script script) {
        try {
            TimeUnit.MILLISECONDS.sleep(script.start_ms);
            for (int life = 0; life < script.lives && !closing; life++) {
                long end = script.life_ms == 0 ? Long.MAX_VALUE : elapsedMs() + script.life_ms;
                if (script.kind.equals("producer")) {
                    produce(script, end);
                } else {
                    consume(script, end);
                }
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    private static void produce(Script script, long end) throws Exception {
        Random random = ThreadLocalRandom.current();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(script.settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            boolean transactional = script.settings.containsKey("transactional.id");
            if (transactional) {
                producer.initTransactions();
            }
            for (int burst = 1, sent = 0; elapsedMs() < end; burst++) {
                if (transactional) {
                    producer.beginTransaction();
                }
                for (int i = 0; i < script.burst; i++, sent++) {
                    byte[] value = new byte[script.bytes];
                    if (script.random) {
                        random.nextBytes(value);
                    }
                    Integer partition = script.partitions == 0 ? null : sent % script.partitions;
                    String topic = script.topics.get(sent % script.topics.size());
                    try {
                        var answer = producer.send(new ProducerRecord<>(topic, partition, null, value));
                        if (script.sync) {
                            answer.get();
                        }
                    } catch (KafkaException | java.util.concurrent.ExecutionException e) {
                        // as an application that ignores it
                    }
                }
                if (transactional && script.abort_every != 0 && burst % script.abort_every == 0) {
                    producer.abortTransaction();
                } else if (transactional) {
                    producer.commitTransaction();
                }
                pause(script, script.pause_ms);
            }
        }
    }

    private static void consume(Script script, long end) throws Exception {
        Map<String, Object> settings = new HashMap<>(script.settings);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (script.by_hand) {
                consumer.assign(script.topics.stream()
                        .flatMap(topic -> consumer.partitionsFor(topic).stream())
                        .map(each -> new TopicPartition(each.topic(), each.partition()))
                        .toList());
            } else {
                consumer.subscribe(script.topics);
            }
            while (elapsedMs() < end) {
                if (script.paused_from_ms > 0 && elapsedMs() >= script.paused_from_ms) {
                    consumer.pause(consumer.assignment());
                }
                int records = consumer.poll(Duration.ofMillis(script.poll_ms)).count();
                if (script.commit_each_poll && records > 0) {
                    consumer.commitSync();
                }
                pause(script, records == 0 ? 0 : script.pause_ms);
            }
        }
    }

    private static void pause(Script script, long milliseconds) throws InterruptedException {
        TimeUnit.MILLISECONDS.sleep(milliseconds);
        if (script.sleep_ms.length == 2 && elapsedMs() >= script.sleep_ms[0]) {
            TimeUnit.MILLISECONDS.sleep(script.sleep_ms[1]);
            script.sleep_ms = new long[0];
        }
    }

    private static long elapsedMs() {
        return (System.nanoTime() - BEGIN) / 1_000_000;
    }
}
