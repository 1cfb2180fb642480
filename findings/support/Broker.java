import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsRequestData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseData;
import org.apache.kafka.common.message.PushTelemetryRequestData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.GetTelemetrySubscriptionsRequest;
import org.apache.kafka.common.requests.PushTelemetryRequest;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.server.ClientMetricsManager;
import org.apache.kafka.server.metrics.ClientTelemetryExporterPlugin;

/** The part of a Kafka broker that answers clients' telemetry requests, with a clock that stands until it is set. */
class Broker implements Time {
    final ClientTelemetryExporterPlugin plugins = new ClientTelemetryExporterPlugin();
    private final ClientMetricsManager manager;
    private long now = 1_000_000_000_000L;

    Broker(int maxBytes) {
        manager = new ClientMetricsManager(plugins, maxBytes, this, new Metrics());
    }

    void subscription(String name, String... keysAndValues) {
        manager.updateSubscription(name, properties(keysAndValues));
    }

    static Properties properties(String... keysAndValues) {
        Properties properties = new Properties();
        for (int at = 0; at < keysAndValues.length; at += 2) properties.put(keysAndValues[at], keysAndValues[at + 1]);
        return properties;
    }

    /** A new client asks for its subscription. */
    GetTelemetrySubscriptionsResponseData hello(String clientId) throws Exception {
        var data = new GetTelemetrySubscriptionsRequestData().setClientInstanceId(Uuid.ZERO_UUID);
        var request = new GetTelemetrySubscriptionsRequest.Builder(data, true).build();
        return manager.processGetTelemetrySubscriptionRequest(request, context(clientId)).data();
    }

    Errors push(GetTelemetrySubscriptionsResponseData of, String clientId, byte[] metrics, int codec, boolean terminating)
            throws Exception {
        var data = new PushTelemetryRequestData()
                .setClientInstanceId(of.clientInstanceId())
                .setSubscriptionId(of.subscriptionId())
                .setCompressionType((byte) codec)
                .setTerminating(terminating)
                .setMetrics(ByteBuffer.wrap(metrics));
        var request = new PushTelemetryRequest(data, (short) 0);
        return Errors.forCode(manager.processPushTelemetryRequest(request, context(clientId)).data().errorCode());
    }

    void close() throws Exception {
        manager.close();
    }

    void later(long ms) {
        now += ms;
    }

    private static RequestContext context(String clientId) throws Exception {
        return new RequestContext(new RequestHeader(ApiKeys.PUSH_TELEMETRY, (short) 0, clientId, 0), "connection-" + clientId,
                InetAddress.getLoopbackAddress(), KafkaPrincipal.ANONYMOUS, ListenerName.normalised("L"),
                SecurityProtocol.PLAINTEXT, new ClientInformation("apache-kafka-java", "4.4.0"), false);
    }

    @Override public long milliseconds() {
        return now;
    }

    @Override public long nanoseconds() {
        return now * 1_000_000;
    }

    @Override public void sleep(long ms) {
        now += ms;
    }

    @Override public void waitObject(Object monitor, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException();
    }

    @Override public Timer timer(long ms) {
        return Time.SYSTEM.timer(ms);
    }
}
