package io.github.kafkatelemetrylake.receiver.proxy;

import com.fasterxml.jackson.annotation.JsonAnySetter;
import java.util.LinkedHashMap;
import java.util.Map;

/** A filter definition's {@code config} as it was written. Whatever it says can be read; {@link FilterSettings} checks it. */
public final class FilterConfig {
    private final Map<String, Object> values = new LinkedHashMap<>();

    @JsonAnySetter
    public void set(String key, Object value) {
        values.put(key, value);
    }

    Map<String, Object> values() {
        return values;
    }
}
