package io.github.kafkatelemetrylake.receiver.proxy;

import io.github.kafkatelemetrylake.receiver.BrokerIdentity;
import io.github.kafkatelemetrylake.receiver.LandingService;
import io.github.kafkatelemetrylake.receiver.PushRequest;
import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryProtocol;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.utils.AppInfoParser;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What all connections of one filter definition share: client instances, subscriptions, the lander. */
final class TelemetryReceiver {
    /** Of a definition that receives nothing. */
    static final TelemetryReceiver NONE = new TelemetryReceiver(false, null, null);

    private static final Logger LOG = LoggerFactory.getLogger(TelemetryReceiver.class);
    /** Four times what a broker remembers. */
    private static final int MAX_INSTANCES = 65_536;

    final boolean requireSasl;
    final TelemetryProtocol protocol;
    final Refusals refusals;

    private final BrokerIdentity identity = new BrokerIdentity();
    private final Map<String, String> clusterIds = new ConcurrentHashMap<>();
    private final AtomicBoolean closed = new AtomicBoolean();
    private LandingService landing;
    private SubscriptionSource source;
    private Thread atExit;

    private TelemetryReceiver(boolean requireSasl, TelemetryProtocol protocol, Refusals refusals) {
        this.requireSasl = requireSasl;
        this.protocol = protocol;
        this.refusals = refusals;
    }

    /** Reads the subscriptions and starts the lander. Throws if they can't be read from their file. */
    static TelemetryReceiver start(FilterSettings settings) {
        TelemetryProtocol protocol = new TelemetryProtocol(
                settings.telemetryMaxBytes, MAX_INSTANCES, () -> TimeUnit.NANOSECONDS.toMillis(System.nanoTime()));
        TelemetryReceiver receiver = new TelemetryReceiver(
                settings.requireSasl, protocol, new Refusals(settings.telemetryMaxBytes));
        receiver.source = SubscriptionSource.start(settings, protocol);
        try {
            receiver.landing = LandingService.start(settings.lander, receiver.identity, settings.name);
        } catch (RuntimeException | Error e) {
            receiver.source.close();
            throw e;
        }
        // A proxy that is stopped by a signal need not close its filters.
        receiver.atExit = new Thread(receiver::close, "client-telemetry-close");
        Runtime.getRuntime().addShutdownHook(receiver.atExit);
        LOG.info("Telemetry is answered by the proxy, {}. Its Kafka client {} passes APIs up to key {}: what brokers offer"
                        + " beyond is lost to clients",
                settings.requireSasl ? "on connections that SASL has authenticated" : "on each connection",
                AppInfoParser.getVersion(), ApiKeys.clientApis().stream().mapToInt(key -> key.id).max().orElse(-1));
        return receiver;
    }

    /** Takes a push of any connection; false if it is closing, so that the push wouldn't land. Never throws or waits. */
    boolean offer(PushRequest push) {
        return landing.offer(push);
    }

    /** The brokers behind a virtual cluster have sent their cluster's id. */
    void cluster(String virtualCluster, String clusterId) {
        if (clusterId != null && clusterIds.putIfAbsent(virtualCluster, clusterId) == null && identity.clusterId() == null) {
            identity.clusterId(clusterId);  // of the status records: one receiver is one series of them
        }
    }

    /** Null until the brokers behind a virtual cluster have sent it. */
    String cluster(String virtualCluster) {
        return clusterIds.get(virtualCluster);
    }

    /** Lands what is queued. Connections are served until the process ends. */
    void close() {
        if (landing == null || !closed.compareAndSet(false, true)) {
            return;
        }
        source.close();
        landing.close();
        try {
            Runtime.getRuntime().removeShutdownHook(atExit);
        } catch (IllegalStateException e) {
            LOG.debug("The proxy is stopping", e);
        }
    }
}
