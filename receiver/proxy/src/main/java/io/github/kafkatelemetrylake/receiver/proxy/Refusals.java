package io.github.kafkatelemetrylake.receiver.proxy;

import io.github.kafkatelemetrylake.receiver.OncePerMinute;
import java.util.EnumMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.protocol.Errors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Logs why telemetry is refused: one line for each reason, at most once a minute, as clients choose how often they ask. */
final class Refusals {
    private static final Logger LOG = LoggerFactory.getLogger(Refusals.class);
    private static final int MOST_CHARACTERS = 64;
    /** What a log's reader might take for something else. */
    private static final Pattern UNUSUAL = Pattern.compile("[^A-Za-z0-9._-]");

    private final int telemetryMaxBytes;
    private final OncePerMinute unauthenticated = new OncePerMinute();
    private final Map<Errors, OncePerMinute> pushes = new EnumMap<>(Errors.class);  // never changed

    Refusals(int telemetryMaxBytes) {
        this.telemetryMaxBytes = telemetryMaxBytes;
        for (Errors error : new Errors[] {
            Errors.INVALID_REQUEST, Errors.THROTTLING_QUOTA_EXCEEDED, Errors.UNKNOWN_SUBSCRIPTION_ID,
            Errors.UNSUPPORTED_COMPRESSION_TYPE, Errors.TELEMETRY_TOO_LARGE
        }) {
            pushes.put(error, new OncePerMinute());
        }
    }

    /** A telemetry request came on a connection that isn't authenticated. */
    void unauthenticated() {
        if (unauthenticated.due()) {
            LOG.warn("A connection without SASL asked for telemetry and got none; if clients of this virtual cluster use no"
                    + " SASL, set requireSasl to false");
        }
    }

    /** A push got an error of the protocol as its answer. */
    void push(Errors error, String clientId, int metricsBytes, int compressionType, int pushIntervalMs) {
        if (pushes.get(error).due()) {
            LOG.warn("A push of client id {} is refused as {}: {}", readable(clientId), error,
                    reason(error, metricsBytes, compressionType, pushIntervalMs));
        }
    }

    private String reason(Errors error, int metricsBytes, int compressionType, int pushIntervalMs) {
        switch (error) {
            case THROTTLING_QUOTA_EXCEEDED:
                return "it came within " + pushIntervalMs + " ms, the interval, after the last one of its client instance";
            case UNKNOWN_SUBSCRIPTION_ID:
                return "its subscription isn't the client instance's: subscriptions have changed, or it hasn't asked for one";
            case TELEMETRY_TOO_LARGE:
                return "it has " + metricsBytes + " bytes, and telemetryMaxBytes is " + telemetryMaxBytes;
            case UNSUPPORTED_COMPRESSION_TYPE:
                return "Kafka has no compression type " + compressionType;
            default:
                return "it has no client instance id, or comes after the last one of its client instance";
        }
    }

    static String readable(String clientId) {
        if (clientId == null) {
            return "null";
        }
        String cut = clientId.length() <= MOST_CHARACTERS ? clientId : clientId.substring(0, MOST_CHARACTERS);
        return UNUSUAL.matcher(cut).replaceAll("?");
    }
}
