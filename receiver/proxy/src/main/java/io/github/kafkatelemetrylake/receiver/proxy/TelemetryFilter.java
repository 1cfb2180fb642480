package io.github.kafkatelemetrylake.receiver.proxy;

import io.github.kafkatelemetrylake.receiver.PushDetails;
import io.github.kafkatelemetrylake.receiver.PushRequest;
import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryClient;
import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryProtocol;
import io.kroxylicious.proxy.filter.ApiVersionsRequestFilter;
import io.kroxylicious.proxy.filter.ApiVersionsResponseFilter;
import io.kroxylicious.proxy.filter.FilterContext;
import io.kroxylicious.proxy.filter.GetTelemetrySubscriptionsRequestFilter;
import io.kroxylicious.proxy.filter.MetadataResponseFilter;
import io.kroxylicious.proxy.filter.PushTelemetryRequestFilter;
import io.kroxylicious.proxy.filter.RequestFilterResult;
import io.kroxylicious.proxy.filter.ResponseFilterResult;
import io.kroxylicious.proxy.filter.SaslAuthenticateRequestFilter;
import io.kroxylicious.proxy.filter.SaslAuthenticateResponseFilter;
import io.kroxylicious.proxy.filter.SaslHandshakeRequestFilter;
import io.kroxylicious.proxy.filter.SaslHandshakeResponseFilter;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsRequestData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseData;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.PushTelemetryRequestData;
import org.apache.kafka.common.message.PushTelemetryResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.message.SaslAuthenticateRequestData;
import org.apache.kafka.common.message.SaslAuthenticateResponseData;
import org.apache.kafka.common.message.SaslHandshakeRequestData;
import org.apache.kafka.common.message.SaslHandshakeResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/**
 * One connection of a client: answers its telemetry requests, and passes everything else on as it is.
 *
 * <p>All methods run on the connection's event loop, and none waits.
 */
final class TelemetryFilter implements ApiVersionsRequestFilter, ApiVersionsResponseFilter, SaslHandshakeRequestFilter,
        SaslHandshakeResponseFilter, SaslAuthenticateRequestFilter, SaslAuthenticateResponseFilter, MetadataResponseFilter,
        GetTelemetrySubscriptionsRequestFilter, PushTelemetryRequestFilter {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final ApiKeys[] ANSWERED = {ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, ApiKeys.PUSH_TELEMETRY};

    private final TelemetryReceiver receiver;
    private final SaslProgress sasl = new SaslProgress();
    private String softwareName;
    private String softwareVersion;

    TelemetryFilter(TelemetryReceiver receiver) {
        this.receiver = receiver;
    }

    @Override
    public CompletionStage<RequestFilterResult> onApiVersionsRequest(
            short apiVersion, RequestHeaderData header, ApiVersionsRequestData request, FilterContext context) {
        if (apiVersion >= 3) {  // KIP-511
            softwareName = request.clientSoftwareName();
            softwareVersion = request.clientSoftwareVersion();
        }
        return context.forwardRequest(header, request);
    }

    /** Adds the two requests that the proxy answers: clients ask only for what is listed. */
    @Override
    public CompletionStage<ResponseFilterResult> onApiVersionsResponse(
            short apiVersion, ResponseHeaderData header, ApiVersionsResponseData response, FilterContext context) {
        if (response.errorCode() == Errors.NONE.code()) {
            for (ApiKeys key : ANSWERED) {
                if (response.apiKeys().find(key.id) == null) {
                    response.apiKeys().add(new ApiVersionsResponseData.ApiVersion()
                            .setApiKey(key.id).setMinVersion((short) 0).setMaxVersion((short) 0));
                }
            }
        }
        return context.forwardResponse(header, response);
    }

    @Override
    public CompletionStage<RequestFilterResult> onSaslHandshakeRequest(
            short apiVersion, RequestHeaderData header, SaslHandshakeRequestData request, FilterContext context) {
        sasl.handshake(request.mechanism());
        return context.forwardRequest(header, request);
    }

    @Override
    public CompletionStage<ResponseFilterResult> onSaslHandshakeResponse(
            short apiVersion, ResponseHeaderData header, SaslHandshakeResponseData response, FilterContext context) {
        sasl.handshakeAnswered(response.errorCode() == Errors.NONE.code());
        return context.forwardResponse(header, response);
    }

    @Override
    public CompletionStage<RequestFilterResult> onSaslAuthenticateRequest(
            short apiVersion, RequestHeaderData header, SaslAuthenticateRequestData request, FilterContext context) {
        sasl.sent(request.authBytes());
        return context.forwardRequest(header, request);
    }

    @Override
    public CompletionStage<ResponseFilterResult> onSaslAuthenticateResponse(
            short apiVersion, ResponseHeaderData header, SaslAuthenticateResponseData response, FilterContext context) {
        sasl.answered(response.errorCode() == Errors.NONE.code(), response.authBytes());
        return context.forwardResponse(header, response);
    }

    @Override
    public CompletionStage<ResponseFilterResult> onMetadataResponse(
            short apiVersion, ResponseHeaderData header, MetadataResponseData response, FilterContext context) {
        sasl.served();
        receiver.cluster(context.getVirtualClusterName(), response.clusterId());
        return context.forwardResponse(header, response);
    }

    @Override
    public CompletionStage<RequestFilterResult> onGetTelemetrySubscriptionsRequest(
            short apiVersion, RequestHeaderData header, GetTelemetrySubscriptionsRequestData request, FilterContext context) {
        GetTelemetrySubscriptionsResponseData response = new GetTelemetrySubscriptionsResponseData();
        if (mayPush()) {
            TelemetryProtocol.SubscriptionsAnswer answer = receiver.protocol.get(request.clientInstanceId(), client(header));
            response.setErrorCode(answer.error.code())
                    .setClientInstanceId(answer.clientInstanceId)
                    .setSubscriptionId(answer.subscriptionId)
                    .setRequestedMetrics(answer.requestedMetrics)
                    .setPushIntervalMs(answer.pushIntervalMs)
                    .setTelemetryMaxBytes(answer.telemetryMaxBytes)
                    .setDeltaTemporality(answer.error == Errors.NONE);
            if (answer.error == Errors.NONE) {
                response.setAcceptedCompressionTypes(TelemetryProtocol.ACCEPTED_COMPRESSION_TYPES);
            }
        } else {
            response.setErrorCode(Errors.UNSUPPORTED_VERSION.code());  // clients then ask no more
        }
        return context.requestFilterResultBuilder().shortCircuitResponse(response).completed();
    }

    @Override
    public CompletionStage<RequestFilterResult> onPushTelemetryRequest(
            short apiVersion, RequestHeaderData header, PushTelemetryRequestData request, FilterContext context) {
        Errors error = mayPush() ? pushed(header, request, context) : Errors.UNSUPPORTED_VERSION;
        return context.requestFilterResultBuilder()
                .shortCircuitResponse(new PushTelemetryResponseData().setErrorCode(error.code()))
                .completed();
    }

    private Errors pushed(RequestHeaderData header, PushTelemetryRequestData request, FilterContext context) {
        ByteBuffer metrics = request.metrics();
        int size = metrics == null ? 0 : metrics.remaining();
        TelemetryProtocol.PushAnswer answered = receiver.protocol.push(request.clientInstanceId(), client(header),
                request.subscriptionId(), request.terminating(), request.compressionType(), size);
        if (answered.error != Errors.NONE) {
            receiver.refusals.push(
                    answered.error, header.clientId(), size, request.compressionType(), answered.pushIntervalMs);
            return answered.error;
        }
        // Brokers' plugins get no push without metrics. The last one of a client tells its end.
        if ((size > 0 || request.terminating())
                && !receiver.offer(new Pushed(header, request, context.getVirtualClusterName(), answered.pushIntervalMs))) {
            return Errors.THROTTLING_QUOTA_EXCEEDED;  // it is closing: the client pushes again after its interval, elsewhere
        }
        return Errors.NONE;
    }

    private boolean mayPush() {
        if (!receiver.requireSasl || sasl.authenticated()) {
            return true;
        }
        receiver.refusals.unauthenticated();
        return false;
    }

    private TelemetryClient client(RequestHeaderData header) {
        return new TelemetryClient(header.clientId(), softwareName, softwareVersion);
    }

    /** A push on this connection. */
    private final class Pushed implements PushRequest {
        private final RequestHeaderData header;
        private final PushTelemetryRequestData request;
        private final String virtualCluster;
        private final int pushIntervalMs;

        Pushed(RequestHeaderData header, PushTelemetryRequestData request, String virtualCluster, int pushIntervalMs) {
            this.header = header;
            this.request = request;
            this.virtualCluster = virtualCluster;
            this.pushIntervalMs = pushIntervalMs;
        }

        @Override
        public ByteBuffer data() {
            return request.metrics();
        }

        /** Address and port of the client, and the broker, aren't known to a filter. */
        @Override
        public PushDetails details() {
            PushDetails details = new PushDetails();
            details.clientInstanceId = request.clientInstanceId();
            details.terminating = request.terminating();
            details.contentType = "OTLP";
            details.compressionType = CODECS[request.compressionType()];
            details.subscriptionId = request.subscriptionId();
            details.pushIntervalMs = pushIntervalMs;
            details.clientId = header.clientId();
            details.principal = sasl.principal();
            details.listener = virtualCluster;
            details.softwareName = softwareName;
            details.softwareVersion = softwareVersion;
            details.clusterId = receiver.cluster(virtualCluster);
            details.correlationId = header.correlationId();
            return details;
        }
    }
}
