import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;

/** A Streams application that reads one topic, until standard input ends. {@code driver.fault} says what is wrong. */
public final class ScriptedStreams {
    private static final long LIFE_OF_A_THREAD_NS = TimeUnit.SECONDS.toNanos(20);

    public static void main(String[] arguments) throws Exception {
        Properties settings = TelemetryClient.settings(arguments[0]);
        String fault = settings.getProperty("driver.fault");
        // Values are no longs: the deserialization handler of the settings drops them.
        Serde<?> values = fault.equals("drops") ? Serdes.Long() : Serdes.ByteArray();
        long[] dies = {System.nanoTime() + LIFE_OF_A_THREAD_NS};
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(settings.getProperty("driver.topic"), Consumed.with(Serdes.ByteArray(), values))
                .foreach((key, value) -> {
                    if (fault.equals("dies") && System.nanoTime() > dies[0]) {
                        dies[0] = System.nanoTime() + LIFE_OF_A_THREAD_NS;
                        throw new IllegalStateException("a record that the application can't process");
                    }
                });
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
            streams.start();
            TelemetryClient.print("started");
            TelemetryClient.closing.await();
            TelemetryClient.print("closed");
            Runtime.getRuntime().halt(0);
        }
    }
}
