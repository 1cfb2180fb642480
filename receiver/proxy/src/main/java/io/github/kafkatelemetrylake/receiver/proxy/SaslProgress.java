package io.github.kafkatelemetrylake.receiver.proxy;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * How far a connection's SASL exchange is, and who the client says it is, seen from between client and broker.
 *
 * <p>The broker judges; this only reads names from the client's first message (PLAIN: RFC 4616, SCRAM: RFC 5802,
 * OAUTHBEARER: RFC 7628) and the end of the exchange from the broker's answers. No message is kept.
 */
final class SaslProgress {
    private static final Pattern SCRAM_NAME = Pattern.compile("[ny],[^,]*,n=([^,]*),.*", Pattern.DOTALL);
    private static final Pattern BEARER = Pattern.compile("auth=Bearer +[^.\u0001]*\\.([^.\u0001]*)");
    private static final ObjectMapper JSON = new ObjectMapper();

    private String mechanism;
    private boolean accepted;
    private boolean begun;
    private String claimed;
    private boolean authenticated;
    private String principal;

    /** The client asks for a mechanism; also when it authenticates again (KIP-368), until which the first one counts. */
    void handshake(String asked) {
        mechanism = asked;
        accepted = false;
        begun = false;
        claimed = null;
    }

    /** The broker answers the request for a mechanism. */
    void handshakeAnswered(boolean taken) {
        accepted = taken && mechanism != null;
    }

    /** A message of the client's. Whatever it holds, this doesn't throw. */
    void sent(byte[] message) {
        if (!begun && mechanism != null) {
            begun = true;
            claimed = name(mechanism, message);
        }
    }

    /** An answer of the broker's to such a message. */
    void answered(boolean withoutError, byte[] message) {
        if (!withoutError) {
            authenticated = false;
            principal = null;
            accepted = false;
        } else if (accepted && begun && ends(message)) {
            succeeded();
        }
    }

    /** The broker has answered a request that it answers to nobody before SASL has ended. */
    void served() {
        if (accepted && begun) {
            succeeded();
        }
    }

    /** Whether the broker has authenticated the client on this connection. */
    boolean authenticated() {
        return authenticated;
    }

    /** Such as {@code User:orders}; null if nobody is authenticated, or the mechanism doesn't show the name. */
    String principal() {
        return principal;
    }

    private void succeeded() {
        authenticated = true;
        principal = claimed == null ? null : "User:" + claimed;
        accepted = false;
    }

    /** Of a mechanism that isn't known here the end is seen only by {@link #served}. */
    private boolean ends(byte[] message) {
        if (mechanism.equals("PLAIN")) {
            return true;
        }
        if (mechanism.startsWith("SCRAM-")) {
            return message.length > 1 && message[0] == 'v' && message[1] == '=';
        }
        return mechanism.equals("OAUTHBEARER") && message.length == 0;  // an error comes as a message without an error code
    }

    private static String name(String mechanism, byte[] message) {
        String text = new String(message, StandardCharsets.UTF_8);
        if (mechanism.equals("PLAIN")) {
            String[] parts = text.split("\0", -1);
            return parts.length == 3 && !parts[1].isEmpty() ? parts[1] : null;
        }
        if (mechanism.startsWith("SCRAM-")) {
            Matcher first = SCRAM_NAME.matcher(text);
            // With a delegation token the name is that of the token, not of its owner.
            return first.matches() && !text.contains(",tokenauth=true")
                    ? first.group(1).replace("=2C", ",").replace("=3D", "=") : null;
        }
        return mechanism.equals("OAUTHBEARER") ? subject(text) : null;
    }

    /** The claim {@code sub} of a token that is a JWT: brokers' default for the name. */
    private static String subject(String text) {
        Matcher bearer = BEARER.matcher(text);
        if (!bearer.find()) {
            return null;
        }
        try {
            JsonNode claims = JSON.readTree(Base64.getUrlDecoder().decode(bearer.group(1)));
            return claims != null && claims.path("sub").isTextual() ? claims.get("sub").textValue() : null;
        } catch (IOException | IllegalArgumentException e) {
            return null;
        }
    }
}
