package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * What the broker knows of the connection but its plugin interface does not offer: software name, version and port.
 *
 * <p>{@link RequestContext} is the broker's own class, not an API: where it is another one, or has changed, these are null.
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

    /** Its own class, so that a broker without these classes fails here and not where {@link ConnectionDetails} loads. */
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
