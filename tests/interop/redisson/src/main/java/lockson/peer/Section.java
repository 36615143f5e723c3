package lockson.peer;

import java.util.List;

/** A section that the load loop enters and leaves. */
interface Section {
    /** The names that are protected while a thread is inside. */
    List<String> names();

    /** Returns false if the section was busy until the end of the wait. */
    boolean enter() throws Exception;

    void leave() throws Exception;
}
