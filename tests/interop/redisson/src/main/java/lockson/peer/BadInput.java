package lockson.peer;

/** A request that the protocol does not allow; nothing was done. */
final class BadInput extends RuntimeException {
    private static final long serialVersionUID = 1;

    BadInput(String message) {
        super(message);
    }
}
