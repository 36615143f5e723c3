package lockson.peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.redisson.api.RLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Calls methods that only newer Redisson versions have; with older versions the answer is "unsupported". */
final class NewerApi {
    private NewerApi() {
    }

    static RLock nonReentrantLock(RedissonClient redisson, String name) {
        return (RLock) call(RedissonClient.class, redisson, "getNonReentrantLock", String.class, name);
    }

    static RLock nonReentrantFairLock(RedissonClient redisson, String name) {
        return (RLock) call(RedissonClient.class, redisson, "getNonReentrantFairLock", String.class, name);
    }

    static boolean releaseIfExists(RSemaphore semaphore, int permits) {
        return (boolean) call(RSemaphore.class, semaphore, "releaseIfExists", int.class, permits);
    }

    private static Object call(Class<?> api, Object target, String name, Class<?> parameter, Object argument) {
        try {
            Method method = api.getMethod(name, parameter);
            return method.invoke(target, argument);
        } catch (NoSuchMethodException older) {
            throw new UnsupportedOperationException("this Redisson has no " + name, older);
        } catch (InvocationTargetException failed) {
            if (failed.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(failed.getCause());
        } catch (IllegalAccessException impossible) {
            throw new IllegalStateException(name + " is public", impossible);
        }
    }
}
