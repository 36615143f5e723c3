package lockson.peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.MalformedURLException;
import java.net.URL;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import org.redisson.config.ConstantDelay;
import org.redisson.config.DelayStrategy;

/**
 * Calls a setter by name with a value given as text.
 *
 * <p>By name, because the class of a setter and the package of its parameter's type differ between versions.
 */
final class Setting {
    private Setting() {
    }

    /** Returns false if the object has no such setter. */
    static boolean apply(Object target, String setter, String value) {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                call(target, method, convert(setter, value, method.getParameterTypes()[0]));
                return true;
            }
        }
        return false;
    }

    private static void call(Object target, Method method, Object argument) {
        try {
            method.invoke(target, argument);
        } catch (InvocationTargetException refused) {
            throw new BadInput(method.getName() + ": " + refused.getCause());
        } catch (IllegalAccessException impossible) {
            throw new IllegalStateException(method + " is public", impossible);
        }
    }

    private static Object convert(String setter, String value, Class<?> type) {
        try {
            if (type == String.class) {
                return value;
            } else if (type == int.class) {
                return Integer.parseInt(value);
            } else if (type == long.class) {
                return Long.parseLong(value);
            } else if (type == boolean.class) {
                return Request.flag(setter, value);
            } else if (type == DelayStrategy.class) {
                return new ConstantDelay(Duration.ofMillis(Long.parseLong(value)));
            } else if (type == URL.class) {
                return Path.of(value).toUri().toURL();
            } else if (type.isEnum()) {
                return constant(value, type);
            } else if (type.getSimpleName().equals("NameMapper")) {
                return prefixMapper(value, type);
            }
        } catch (IllegalArgumentException | MalformedURLException malformed) {
            throw new BadInput(setter + " refuses '" + value + "'");
        }
        throw new IllegalStateException("no way to make a " + type);
    }

    private static Object constant(String value, Class<?> type) {
        return Arrays.stream(type.getEnumConstants())
                .filter(constant -> constant.toString().equals(value.toUpperCase(Locale.ROOT)))
                .findFirst()
                .orElseThrow(() -> new BadInput("not one of the values of " + type.getSimpleName() + ": " + value));
    }

    private static Object prefixMapper(String prefix, Class<?> type) {
        return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (mapper, method, arguments) ->
                switch (method.getName()) {
                    case "map" -> prefix + arguments[0];
                    case "unmap" -> ((String) arguments[0]).substring(prefix.length());
                    default -> method.invoke(prefix, arguments);
                });
    }
}
