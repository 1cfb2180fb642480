package io.github.kafkatelemetrylake.receiver.proxy;

import io.github.kafkatelemetrylake.receiver.subscriptions.Subscription;
import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryProtocol;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Keeps a protocol's subscriptions as they are in a file or in the brokers, by a thread of its own. */
final class SubscriptionSource {
    private static final Logger LOG = LoggerFactory.getLogger(SubscriptionSource.class);

    private final Reader reader;
    private final TelemetryProtocol protocol;
    private final CountDownLatch ending = new CountDownLatch(1);
    private String lastProblem;

    private SubscriptionSource(Reader reader, TelemetryProtocol protocol) {
        this.reader = reader;
        this.protocol = protocol;
    }

    /** Where subscriptions come from. */
    interface Reader extends AutoCloseable {
        /** All of them. Throws if they can't be read; the message says why. */
        List<Subscription> read() throws Exception;

        @Override
        void close();
    }

    /**
     * Reads once and then again and again.
     *
     * @throws IllegalArgumentException the file can't be read, or a broker would refuse one of its subscriptions
     */
    static SubscriptionSource start(FilterSettings settings, TelemetryProtocol protocol) {
        boolean ofFile = settings.subscriptionsFile != null;
        SubscriptionSource source = new SubscriptionSource(
                ofFile ? new SubscriptionsFile(settings.subscriptionsFile) : new BrokerSubscriptions(settings.adminConfig),
                protocol);
        source.refresh();
        if (ofFile && source.lastProblem != null) {
            throw new IllegalArgumentException(source.lastProblem);
        }
        Thread thread = new Thread(() -> source.run(settings.subscriptionsRefreshMs), "client-telemetry-subscriptions");
        thread.setDaemon(true);
        thread.start();
        return source;
    }

    private void run(long refreshMs) {
        try {
            while (!ending.await(refreshMs, TimeUnit.MILLISECONDS)) {
                refresh();
            }
        } catch (InterruptedException e) {
            LOG.debug("Interrupted: subscriptions stay as they are", e);
        } finally {
            reader.close();
        }
    }

    private void refresh() {
        try {
            List<Subscription> read = reader.read();
            if (protocol.subscribe(read)) {
                LOG.info("Subscriptions: {}", read);
                warnOfAddresses(read);
            }
            lastProblem = null;
        } catch (Exception e) {
            String problem = e.getMessage() == null ? e.toString() : e.getMessage();
            if (!problem.equals(lastProblem)) {
                LOG.warn("Subscriptions can't be read, they stay as they were: {}", problem);
                lastProblem = problem;
            }
        }
    }

    private static void warnOfAddresses(List<Subscription> read) {
        for (Subscription each : read) {
            if (each.matchKeys().stream().anyMatch(key -> key.startsWith("client_source_"))) {
                LOG.warn("Subscription {} matches by address or port, which a proxy's filter doesn't know: it matches nobody",
                        each.name);
            }
        }
    }

    void close() {
        ending.countDown();
    }
}
