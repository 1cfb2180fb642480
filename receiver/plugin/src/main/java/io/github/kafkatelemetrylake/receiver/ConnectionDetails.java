package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Details of the connection that the broker's plugin interface does not offer: software name, version and port.
 *
 * <p>{@link RequestContext} is an internal class of the broker. If the context is another class, or has changed, these
 * are null.
 */
final class ConnectionDetails {
    private static final ConnectionDetails UNKNOWN = new ConnectionDetails(null, null, null);

    final String softwareName;
    final String softwareVersion;
    final Integer clientPort;

    private ConnectionDetails(String softwareName, String softwareVersion, Integer clientPort) {
        this.softwareName = softwareName;
        this.softwareVersion = softwareVersion;
        this.clientPort = clientPort;
    }

    static ConnectionDetails of(AuthorizableRequestContext context) {
        try {
            return FromRequestContext.read(context);
        } catch (LinkageError e) {
            return UNKNOWN;
        }
    }

    /** A separate class, so that a broker without these classes fails here and not when it loads {@link ConnectionDetails}. */
    private static final class FromRequestContext {
        static ConnectionDetails read(AuthorizableRequestContext context) {
            if (!(context instanceof RequestContext)) {
                return UNKNOWN;
            }
            RequestContext request = (RequestContext) context;
            return new ConnectionDetails(
                    request.clientInformation.softwareName(),
                    request.clientInformation.softwareVersion(),
                    request.clientPort.orElse(null));
        }
    }
}
