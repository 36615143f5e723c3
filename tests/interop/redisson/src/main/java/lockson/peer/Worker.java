package lockson.peer;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Function;

/** One numbered thread: runs its commands in order and lives as long as the process. */
final class Worker {
    private final BlockingQueue<Function<Worker, String>> commands = new LinkedBlockingQueue<>();
    private final Output output;
    private final Thread thread;
    private boolean running;
    private boolean interrupted;

    Worker(int number, Output output) {
        this.output = output;
        thread = new Thread(this::runCommands, "worker-" + number);
        thread.setDaemon(true);
        thread.start();
    }

    /** Queues a command; the command's result is written as the answer. */
    void submit(Function<Worker, String> command) {
        commands.add(command);
    }

    /** Interrupts the current command; returns false if there is none. The interrupt never hits a later command. */
    synchronized boolean interrupt() {
        if (running) {
            interrupted = true;
            thread.interrupt();
        }
        return running;
    }

    /** Whether the current command has been interrupted. */
    synchronized boolean wasInterrupted() {
        return interrupted;
    }

    private void runCommands() {
        while (true) {
            Function<Worker, String> command = next();
            begin();
            String answer = command.apply(this);
            end(); // before the answer, so that an interrupt sent after the answer cannot hit this command
            output.line(answer);
        }
    }

    private Function<Worker, String> next() {
        try {
            return commands.take();
        } catch (InterruptedException impossible) {
            throw new IllegalStateException("a worker is interrupted only while it runs a command", impossible);
        }
    }

    private synchronized void begin() {
        running = true;
        interrupted = false;
    }

    private synchronized void end() {
        running = false;
        Thread.interrupted(); // discards an interrupt that came too late
    }
}
