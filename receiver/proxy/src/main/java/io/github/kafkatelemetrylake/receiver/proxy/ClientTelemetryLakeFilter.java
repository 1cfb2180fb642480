package io.github.kafkatelemetrylake.receiver.proxy;

import io.kroxylicious.proxy.filter.Filter;
import io.kroxylicious.proxy.filter.FilterFactory;
import io.kroxylicious.proxy.filter.FilterFactoryContext;
import io.kroxylicious.proxy.plugin.Plugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Entry class for Kroxylicious: the type of a filter definition whose proxy answers telemetry itself and lands the pushes.
 *
 * <p>A definition without or with a wrong configuration leaves all traffic as it is; one ERROR line says why.
 */
@Plugin(configType = FilterConfig.class)
public final class ClientTelemetryLakeFilter implements FilterFactory<FilterConfig, TelemetryReceiver> {
    private static final Logger LOG = LoggerFactory.getLogger(ClientTelemetryLakeFilter.class);

    @Override
    public TelemetryReceiver initialize(FilterFactoryContext context, FilterConfig config) {
        try {
            return TelemetryReceiver.start(new FilterSettings(config));
        } catch (IllegalArgumentException e) {  // of the settings: the message is for who wrote them
            LOG.error("No telemetry is received, and all traffic passes as it is: {}", e.getMessage());
        } catch (RuntimeException e) {
            LOG.error("No telemetry is received, and all traffic passes as it is: {}", e.toString(), e);
        }
        return TelemetryReceiver.NONE;
    }

    @Override
    public Filter createFilter(FilterFactoryContext context, TelemetryReceiver receiver) {
        return receiver == TelemetryReceiver.NONE ? new UntouchedFilter() : new TelemetryFilter(receiver);
    }

    @Override
    public void close(TelemetryReceiver receiver) {
        receiver.close();
    }
}
