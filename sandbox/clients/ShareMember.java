import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a share group (KIP-932), driven and reporting like {@link TelemetryClient}. */
public final class ShareMember {
    public static void main(String[] arguments) throws Exception {
        Properties settings = TelemetryClient.settings(arguments[0]);
        long rejectEvery = Long.parseLong(settings.getProperty("driver.reject_every"));
        settings.put("share.acknowledgement.mode", "explicit");
        long accepted = 0;
        long rejected = 0;
        boolean identified = false;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(settings.getProperty("driver.topic")));
            while (TelemetryClient.closing.getCount() > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if (rejectEvery > 0 && (accepted + rejected + 1) % rejectEvery == 0) {
                        consumer.acknowledge(record, AcknowledgeType.REJECT);
                        rejected++;
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted++;
                    }
                }
                consumer.commitSync();
                if (!identified) {
                    try {
                        Uuid id = consumer.clientInstanceId(Duration.ofMillis(1));
                        if (id != null) {
                            identified = true;
                            TelemetryClient.print("started", "client_instance_id", id.toString());
                        }
                    } catch (TimeoutException e) {
                        // not yet
                    }
                }
            }
            TelemetryClient.print("closing", "accepted", accepted, "rejected", rejected,
                    "sums", TelemetryClient.sums(consumer.metrics()));
        }
        TelemetryClient.print("closed");
    }
}
