package io.github.kafkatelemetrylake.receiver;

import java.util.Locale;

/** The JSON of one quota sample: an entity's rate, its quota and its throttle time on this broker. */
final class QuotaRecord {
    static final int VERSION = 1;

    private QuotaRecord() {}

    /**
     * Creates the JSON text. A number that is not finite means that there is no sample, and is omitted.
     *
     * @param timeMs time of the sample, Unix milliseconds
     * @return null if the sensor has neither a rate nor new throttle time
     */
    static String json(BrokerIdentity broker, QuotaSensor sensor, long timeMs) {
        double rate = sensor.observedRate();
        double throttleTimeMs = sensor.newThrottleTimeMs();
        if (!Double.isFinite(rate) && !Double.isFinite(throttleTimeMs)) {
            return null;
        }
        StringBuilder json = new StringBuilder(256)
                .append("{\"version\":").append(VERSION)
                .append(",\"cluster_id\":").append(StatusRecord.text(broker.clusterId()))
                .append(",\"broker_id\":").append(StatusRecord.number(broker.brokerId()))
                .append(",\"time_ms\":").append(timeMs)
                .append(",\"quota_type\":\"").append(sensor.group.toLowerCase(Locale.ROOT)).append('"');
        text(json, "user", sensor.user);
        text(json, "client_id", sensor.clientId);
        number(json, "observed_rate", rate);
        number(json, "quota_limit", sensor.limit());
        number(json, "throttle_time_ms", throttleTimeMs);
        return json.append('}').toString();
    }

    private static void number(StringBuilder json, String name, double value) {
        if (Double.isFinite(value)) {
            json.append(",\"").append(name).append("\":").append(value);
        }
    }

    /** Escapes text, since a client id may contain any character. */
    private static void text(StringBuilder json, String name, String value) {
        json.append(",\"").append(name).append("\":\"");
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                json.append(String.format("\\u%04x", (int) c));  // a lone surrogate has no UTF-8
            } else {
                json.append(c);
            }
        }
        json.append('"');
    }
}
