import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Constructor;
import java.net.InetAddress;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsRequestData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.GetTelemetrySubscriptionsRequest;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.ClientMetricsManager;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.server.metrics.ClientMetricsInstanceMetadata;

/**
 * What Kafka and Java themselves say about subscriptions and patterns: one JSON document in, the same with answers out.
 *
 * <p>{@code patterns}: [pattern, [input, ...]] gets [true, ...], or null where Java refuses the pattern.
 *
 * <p>{@code brokers}: subscriptions (name to its configuration texts) and clients (KIP-714's attributes, each may be
 * null); each client gets what the broker answers to GetTelemetrySubscriptions, and the names that match it. A
 * broker whose subscriptions Kafka refuses gets an error instead.
 */
public final class SubscriptionOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] unused) throws Exception {
        JsonNode asked = JSON.readTree(System.in);
        ObjectNode result = JSON.createObjectNode();
        ArrayNode patterns = result.putArray("patterns");
        for (JsonNode each : asked.path("patterns")) {
            patterns.add(matches(each.get(0).asText(), each.get(1)));
        }
        ArrayNode brokers = result.putArray("brokers");
        for (JsonNode each : asked.path("brokers")) {
            brokers.add(broker(each));
        }
        JSON.writeValue(System.out, result);
    }

    private static JsonNode matches(String regex, JsonNode inputs) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(regex);
        } catch (PatternSyntaxException e) {
            return JSON.nullNode();
        }
        ArrayNode matches = JSON.createArrayNode();
        for (JsonNode input : inputs) {
            matches.add(pattern.matcher(input.asText()).matches());
        }
        return matches;
    }

    private static JsonNode broker(JsonNode asked) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        ArrayNode clients = result.putArray("clients");
        Constructor<?> constructor = ClientMetricsManager.class.getConstructors()[0];
        try (ClientMetricsManager manager =
                (ClientMetricsManager) constructor.newInstance(null, 1 << 20, Time.SYSTEM, new Metrics())) {
            for (Map.Entry<String, JsonNode> each : asked.get("subscriptions").properties()) {
                manager.updateSubscription(each.getKey(), properties(each.getValue()));
            }
            for (JsonNode client : asked.get("clients")) {
                clients.add(client(manager, asked.get("subscriptions"), client));
            }
        } catch (RuntimeException e) {
            return result.put("error", e.getMessage());
        }
        return result;
    }

    private static JsonNode client(ClientMetricsManager manager, JsonNode subscriptions, JsonNode client)
            throws Exception {
        Uuid id = Uuid.fromString(client.get("client_instance_id").asText());
        RequestContext context = context(client);
        GetTelemetrySubscriptionsRequest request = new GetTelemetrySubscriptionsRequest(
                new GetTelemetrySubscriptionsRequestData().setClientInstanceId(id), (short) 0);
        GetTelemetrySubscriptionsResponseData answer =
                manager.processGetTelemetrySubscriptionRequest(request, context).data();
        ObjectNode result = JSON.createObjectNode();
        result.put("subscription_id", answer.subscriptionId());
        result.put("push_interval_ms", answer.pushIntervalMs());
        answer.requestedMetrics().forEach(result.putArray("requested_metrics")::add);
        ArrayNode names = result.putArray("matching");
        ClientMetricsInstanceMetadata metadata = new ClientMetricsInstanceMetadata(id, context);
        for (Map.Entry<String, JsonNode> each : subscriptions.properties()) {
            ClientMetricsConfigs configs = new ClientMetricsConfigs(properties(each.getValue()));
            if (metadata.isMatch(ClientMetricsConfigs.parseMatchingPatterns(configs.getList("match")))) {
                names.add(each.getKey());
            }
        }
        return result;
    }

    private static Properties properties(JsonNode config) {
        Properties properties = new Properties();
        config.properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        return properties;
    }

    private static RequestContext context(JsonNode client) throws Exception {
        String clientId = text(client, "client_id");
        String port = text(client, "client_source_port");
        String name = text(client, "client_software_name");
        String address = text(client, "client_source_address");
        return new RequestContext(
                new RequestHeader(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, (short) 0, clientId, 1),
                "connection",
                address == null ? null : InetAddress.getByName(address),
                port == null ? Optional.empty() : Optional.of(Integer.valueOf(port)),
                KafkaPrincipal.ANONYMOUS,
                new ListenerName("PLAINTEXT"),
                SecurityProtocol.PLAINTEXT,
                name == null ? null : new ClientInformation(name, text(client, "client_software_version")),
                false,
                Optional.empty());
    }

    private static String text(JsonNode client, String key) {
        return client.get(key) == null || client.get(key).isNull() ? null : client.get(key).asText();
    }
}
