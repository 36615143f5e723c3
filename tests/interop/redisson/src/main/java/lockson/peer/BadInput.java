package lockson.peer;

/** A request that the protocol forbids; the request had no effect. */
final class BadInput extends RuntimeException {
    private static final long serialVersionUID = 1;

    BadInput(String message) {
        super(message);
    }
}
