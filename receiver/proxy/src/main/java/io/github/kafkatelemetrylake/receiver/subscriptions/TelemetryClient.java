package io.github.kafkatelemetrylake.receiver.subscriptions;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.Uuid;

/** What is known of the client behind a connection: what subscriptions match by. Null is unknown. */
public final class TelemetryClient {
    /** franz-go: it reads a subscription's {@code *} as a prefix, which no metric has. */
    private static final String FRANZ_GO = "kgo";

    final String clientId;
    final String softwareName;
    final String softwareVersion;

    /** Creates a client of the request header's client id, and of the software that ApiVersions named (KIP-511). */
    public TelemetryClient(String clientId, String softwareName, String softwareVersion) {
        this.clientId = clientId;
        this.softwareName = softwareName;
        this.softwareVersion = softwareVersion;
    }

    boolean takesAllMetricsLiterally() {
        return FRANZ_GO.equals(softwareName);
    }

    /** By KIP-714's name. Address and port are unknown here. */
    Map<String, String> attributes(Uuid clientInstanceId) {
        Map<String, String> attributes = new HashMap<>();
        attributes.put("client_instance_id", clientInstanceId.toString());
        attributes.put("client_id", clientId);
        attributes.put("client_software_name", softwareName);
        attributes.put("client_software_version", softwareVersion);
        return attributes;
    }
}
