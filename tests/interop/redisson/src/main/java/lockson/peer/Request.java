package lockson.peer;

import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeSet;

/** One command line: its verb and its values, decoded on request. */
final class Request {
    private final String verb;
    private final Map<String, String> encodedValues;

    private Request(String verb, Map<String, String> encodedValues) {
        this.verb = verb;
        this.encodedValues = encodedValues;
    }

    /** The id for the answer, also when the rest of the line is garbled. */
    static String idOf(String line) {
        int end = line.indexOf(' ');
        return end < 0 ? line : line.substring(0, end);
    }

    static Request parse(String line) {
        String[] words = line.split(" ", -1);
        if (words.length < 2 || words[0].isEmpty() || words[1].isEmpty()) {
            throw new BadInput("expected: <id> <verb> [key=value ...]");
        }
        Map<String, String> values = new LinkedHashMap<>();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            int equals = word.indexOf('=');
            if (equals < 1) {
                throw new BadInput("not key=value: '" + word + "'");
            }
            if (values.put(word.substring(0, equals), word.substring(equals + 1)) != null) {
                throw new BadInput("given twice: " + word.substring(0, equals));
            }
        }
        return new Request(words[1], values);
    }

    String verb() {
        return verb;
    }

    /** Refuses keys unknown to the verb, so that a misspelt key is not ignored. */
    void allowOnly(Collection<String> keys) {
        TreeSet<String> unknown = new TreeSet<>(encodedValues.keySet());
        unknown.removeAll(keys);
        if (!unknown.isEmpty()) {
            throw new BadInput(verb + " does not take " + unknown);
        }
    }

    boolean has(String key) {
        return encodedValues.containsKey(key);
    }

    String text(String key) {
        return optionalText(key).orElseThrow(() -> new BadInput(verb + " needs " + key));
    }

    String text(String key, String otherwise) {
        return optionalText(key).orElse(otherwise);
    }

    /** Commas separate items before the decoding, so an encoded comma belongs to its item. */
    List<String> texts(String key) {
        if (!has(key) || encodedValues.get(key).isEmpty()) {
            throw new BadInput(verb + " needs at least one of " + key);
        }
        return Arrays.stream(encodedValues.get(key).split(",", -1)).map(Percent::decode).toList();
    }

    List<String> texts(String key, String otherwise) {
        return has(key) ? texts(key) : List.of(otherwise);
    }

    long number(String key) {
        return parseNumber(key, text(key));
    }

    long number(String key, long otherwise) {
        return has(key) ? number(key) : otherwise;
    }

    OptionalLong optionalNumber(String key) {
        return has(key) ? OptionalLong.of(number(key)) : OptionalLong.empty();
    }

    int smallNumber(String key) {
        return smallNumber(key, text(key));
    }

    static int smallNumber(String key, String text) {
        long number = parseNumber(key, text);
        if (number != (int) number) {
            throw new BadInput(key + " is out of range: " + number);
        }
        return (int) number;
    }

    int smallNumber(String key, int otherwise) {
        return has(key) ? smallNumber(key) : otherwise;
    }

    boolean flag(String key) {
        return flag(key, text(key, "false"));
    }

    static boolean flag(String key, String text) {
        return switch (text) {
            case "true" -> true;
            case "false" -> false;
            default -> throw new BadInput(key + " is neither true nor false");
        };
    }

    private Optional<String> optionalText(String key) {
        return Optional.ofNullable(encodedValues.get(key)).map(Percent::decode);
    }

    private static long parseNumber(String key, String text) {
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException notANumber) {
            throw new BadInput(key + " is not a number: '" + text + "'");
        }
    }
}
