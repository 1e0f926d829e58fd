// jitlock from Java, by JNA.

import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.NativeLong;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import com.sun.jna.ptr.LongByReference;
import java.nio.file.Files;
import java.nio.file.Path;

public class Lock implements AutoCloseable {
    @Structure.FieldOrder({"structSize", "timeoutMs", "flags", "progressIntervalMs", "lockPath", "progress", "user",
            "error", "errorSize"})
    public static class Options extends Structure {
        public NativeLong structSize;
        public long timeoutMs;
        public int flags;
        public int progressIntervalMs;
        public String lockPath;
        public Pointer progress;
        public Pointer user;
        public Pointer error;
        public NativeLong errorSize;
    }

    interface Jitlock extends Library {
        Jitlock INSTANCE = Native.load(
                System.getenv().getOrDefault("JITLOCK_LIBRARY", "libjitlock.so.0"), Jitlock.class);

        int jitlock_acquire_with(String cacheDir, Options options, LongByReference lock);

        int jitlock_release(long lock);

        String jitlock_strerror(int status);
    }

    static class Failure extends Exception {
        Failure(String message) {
            super(message);
        }
    }

    /** Virtual threads move between threads of the system. */
    private static final int ANY_THREAD = 1 << 2;

    private final long handle;

    Lock(String cache, double seconds) throws Failure {
        {
            Memory message = new Memory(1024);
            Options options = new Options();
            options.structSize = new NativeLong(options.size());
            options.timeoutMs = (long) Math.ceil(seconds * 1000);
            options.flags = ANY_THREAD;
            options.error = message;
            options.errorSize = new NativeLong(message.size());
            LongByReference lock = new LongByReference();
            if (Jitlock.INSTANCE.jitlock_acquire_with(cache, options, lock) != 0) {
                throw new Failure(message.getString(0, "UTF-8"));
            }
            handle = lock.getValue();
        }
    }

    @Override
    public void close() throws Failure {
        int status = Jitlock.INSTANCE.jitlock_release(handle);
        if (status != 0) {
            throw new Failure(Jitlock.INSTANCE.jitlock_strerror(status));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String command = arguments.length > 1 ? arguments[0] : "";
        try {
            if (command.equals("hold")) {
                try (Lock held = new Lock(arguments[1], 600)) {
                    System.out.println("held");
                    while (System.in.read() != '\n') {
                    }
                }
                System.out.println("released");
            } else if (command.equals("try") && arguments.length == 3) {
                new Lock(arguments[1], Double.parseDouble(arguments[2])).close();
                System.out.println("had it");
            } else if (command.equals("count") && arguments.length == 4) {
                Path file = Path.of(arguments[2]);
                for (int i = 0; i < Integer.parseInt(arguments[3]); i++) {
                    try (Lock held = new Lock(arguments[1], 600)) {
                        Files.writeString(file, String.valueOf(Long.parseLong(Files.readString(file).trim()) + 1));
                    }
                }
            } else {
                throw new Failure("usage: Lock hold CACHE | try CACHE SECONDS | count CACHE FILE TIMES");
            }
        } catch (Failure failure) {
            System.err.println(failure.getMessage());
            System.exit(1);
        }
    }
}
