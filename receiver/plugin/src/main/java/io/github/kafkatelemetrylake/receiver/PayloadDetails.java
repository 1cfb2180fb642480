package io.github.kafkatelemetrylake.receiver;

import java.lang.reflect.Method;
import java.util.Locale;
import java.util.Optional;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/** The payload's compression type, if the broker passes payloads as the client sent them (unmodified Kafka does not). */
final class PayloadDetails {
    private static final ClassValue<Optional<Method>> COMPRESSION_TYPE = new ClassValue<>() {
        @Override
        protected Optional<Method> computeValue(Class<?> type) {
            try {
                Method method = type.getMethod("compressionType");
                method.setAccessible(true);  // the payload's class itself may be package-private
                return Optional.of(method);
            } catch (ReflectiveOperationException | RuntimeException e) {
                return Optional.empty();
            }
        }
    };

    private PayloadDetails() {}

    /** Codec name or id of the payload's bytes; {@code none} if the broker does not provide it. */
    static String compressionType(ClientTelemetryPayload payload) {
        Optional<Method> method = COMPRESSION_TYPE.get(payload.getClass());
        if (method.isEmpty()) {
            return PayloadCompression.NONE;
        }
        try {
            Object type = method.get().invoke(payload);
            return type == null ? PayloadCompression.NONE : type.toString().toLowerCase(Locale.ROOT);
        } catch (ReflectiveOperationException e) {
            return PayloadCompression.NONE;
        }
    }
}
