package io.github.kafkatelemetrylake.receiver.proxy;

import io.kroxylicious.proxy.filter.FilterContext;
import io.kroxylicious.proxy.filter.PushTelemetryRequestFilter;
import io.kroxylicious.proxy.filter.RequestFilterResult;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.message.PushTelemetryRequestData;
import org.apache.kafka.common.message.RequestHeaderData;

/** A filter that sees no message: the proxy doesn't even decode one for it. */
final class UntouchedFilter implements PushTelemetryRequestFilter {
    @Override
    public boolean shouldHandlePushTelemetryRequest(short apiVersion) {
        return false;
    }

    @Override
    public CompletionStage<RequestFilterResult> onPushTelemetryRequest(
            short apiVersion, RequestHeaderData header, PushTelemetryRequestData request, FilterContext context) {
        return context.forwardRequest(header, request);
    }
}
