package io.github.kafkatelemetrylake.receiver;

import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What every receiver runs: the lander of pushes, its status records and its counters in JMX. */
public final class LandingService {
    private static final Logger LOG = LoggerFactory.getLogger(LandingService.class);

    private final QuotaCounts quotas;
    private final Ledger ledger;
    private final Lander lander;
    private final StatusPublisher status;
    private final LanderMetrics metrics;
    private boolean closed;

    private LandingService(
            LanderSettings settings,
            BrokerIdentity identity,
            QuotaCounts quotas,
            Supplier<String> connections,
            String name,
            String jmxName) {
        this.quotas = quotas;
        ledger = new Ledger(System.currentTimeMillis());
        lander = new Lander(settings, identity, ledger,
                () -> settings.producer.create("client-telemetry-lander-" + name));
        status = new StatusPublisher(settings, identity, ledger, lander, quotas, connections,
                () -> settings.producer.create("client-telemetry-status-" + name, StatusPublisher.MAX_BLOCK_MS));
        metrics = new LanderMetrics(jmxName, ledger, lander, quotas);
    }

    /** Starts a receiver without a broker's metrics; its name is part of that of its counters in JMX. */
    public static LandingService start(LanderSettings settings, BrokerIdentity identity, String name) {
        return start(settings, identity, QuotaCounts.NONE, () -> null, name, LanderMetrics.NAME + ",name=" + name);
    }

    /**
     * Starts the threads; nothing connects before there is something to send.
     *
     * @param connections the broker's connections as a JSON array; null: they aren't known
     * @param name ends the client ids of the producers
     * @param jmxName of the counters
     */
    static LandingService start(
            LanderSettings settings,
            BrokerIdentity identity,
            QuotaCounts quotas,
            Supplier<String> connections,
            String name,
            String jmxName) {
        LandingService service = new LandingService(settings, identity, quotas, connections, name, jmxName);
        service.metrics.register();
        service.lander.start();
        service.status.start();
        LOG.info("Client telemetry lands in topic {}, status records in {}, by {}",
                settings.topic, settings.statusTopic, settings.producer.get("bootstrap.servers"));
        return service;
    }

    /** Takes a push, or counts why it can't; false, and uncounted, if it is closing. Never throws, waits or logs. */
    public boolean offer(PushRequest request) {
        return lander.offer(request);
    }

    Lander lander() {
        return lander;
    }

    /** Drains the queue and reports losses. Takes at most the close timeout plus about eight seconds. */
    public synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        lander.close();
        quotas.close();
        status.close();
        metrics.unregister();
        Ledger.Snapshot counts = ledger.snapshot();
        LOG.info("Client telemetry receiver closed: received {}, landed {}, queued {}, dropped {}",
                counts.received, counts.landed, counts.queueDepth(), counts.dropped);
    }
}
