import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.ClientInstanceIds;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Produced;

/** The Streams word count, driven and reporting like {@link TelemetryClient}; one client instance per inner client. */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = TelemetryClient.settings(arguments[0]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        KeyValueMapper<String, String, String> byWord = (key, word) -> word;
        builder.<String, String>stream(settings.getProperty("driver.topic"))
                .flatMapValues(text -> List.of(text.split("\\W+")))
                .groupBy(byWord)
                .count()
                .toStream()
                .to(settings.getProperty("driver.output_topic"), Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            ClientInstanceIds ids = null;
            while (ids == null && !TelemetryClient.closing.await(100, TimeUnit.MILLISECONDS)) {
                if (streams.state() == KafkaStreams.State.RUNNING) { // before, some inner clients don't exist yet
                    try {
                        ids = streams.clientInstanceIds(Duration.ofSeconds(5));
                        TelemetryClient.print("started", "client_instance_ids", instances(ids));
                    } catch (TimeoutException e) {
                        // the brokers have not assigned all ids yet
                    }
                }
            }
            TelemetryClient.closing.await();
            TelemetryClient.print("closing", "records", 0, "failed", 0, "error", null,
                    "sums", TelemetryClient.sums(streams.metrics()));
        }
        TelemetryClient.print("closed");
    }

    private static Map<String, String> instances(ClientInstanceIds ids) {
        Map<String, String> instances = new TreeMap<>();
        try {
            instances.put("admin", ids.adminInstanceId().toString());
        } catch (IllegalStateException e) {
            return instances; // the brokers have no telemetry plugin
        }
        ids.consumerInstanceIds().forEach((client, id) -> instances.put(client, id.toString()));
        ids.producerInstanceIds().forEach((client, id) -> instances.put(client, id.toString()));
        return instances;
    }
}
