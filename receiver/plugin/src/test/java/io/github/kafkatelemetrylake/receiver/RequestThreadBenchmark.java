package io.github.kafkatelemetrylake.receiver;

import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * Prints the time of one push on the broker's request thread, in microseconds; {@code docs/receiver.md} has the command.
 *
 * <p>A Java producer's push has 10 KB, that of a Streams consumer 168 KB (subscription {@code *}).
 */
final class RequestThreadBenchmark {
    private static final int WARM_UP = 20_000;
    private static final int PUSHES = 20_000;

    private RequestThreadBenchmark() {}

    public static void main(String[] args) {
        for (int size : new int[] {10_000, 168_000}) {
            byte[] bytes = new byte[size];
            new Random(1).nextBytes(bytes);
            print("lands, " + size + " B", Fakes.settings(), bytes, true);
            print("queue full, " + size + " B", Fakes.settings("queue.records", "1"), bytes, false);
        }
        System.exit(0);
    }

    private static void print(String name, LanderSettings settings, byte[] bytes, boolean drain) {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
        Ledger ledger = new Ledger(0);
        Lander lander = new Lander(settings, Fakes.broker(), ledger, () -> producer);
        if (drain) {
            lander.start();
        }
        AuthorizableRequestContext context = Fakes.context("benchmark-client");
        ClientTelemetryPayload payload = Fakes.payload(bytes);
        long[] nanos = new long[PUSHES];
        for (int i = -WARM_UP; i < PUSHES; i++) {
            long begin = System.nanoTime();
            lander.accept(new BrokerPush(payload, () -> context, () -> 30_000));
            if (i >= 0) {
                nanos[i] = System.nanoTime() - begin;
            }
            if (i % 100 == 0) {
                producer.clear();
                while (drain && ledger.snapshot().queueDepth() > 50) {
                    LockSupport.parkNanos(100_000);
                }
            }
        }
        Arrays.sort(nanos);
        System.out.printf(
                "%-24s mean %7.2f us  median %7.2f us  99 %% %7.2f us  max %9.2f us%n",
                name, Arrays.stream(nanos).average().orElse(0) / 1e3, nanos[PUSHES / 2] / 1e3, nanos[PUSHES * 99 / 100] / 1e3,
                nanos[PUSHES - 1] / 1e3);
    }
}
