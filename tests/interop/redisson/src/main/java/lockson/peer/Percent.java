package lockson.peer;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Percent-encodes and decodes UTF-8 text. */
final class Percent {
    private static final String UNRESERVED = "-._~";
    private static final HexFormat HEX = HexFormat.of().withUpperCase();

    private Percent() {
    }

    /** Keeps letters, digits and {@code - . _ ~}; writes every other byte as %XX. */
    static String encode(String text) {
        StringBuilder encoded = new StringBuilder(text.length());
        for (byte octet : text.getBytes(StandardCharsets.UTF_8)) {
            char character = (char) (octet & 0xff);
            if (isUnreserved(character)) {
                encoded.append(character);
            } else {
                encoded.append('%').append(HEX.toHexDigits(octet));
            }
        }
        return encoded.toString();
    }

    static String decode(String encoded) {
        byte[] octets = encoded.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream decoded = new ByteArrayOutputStream(octets.length);
        for (int i = 0; i < octets.length; i++) {
            if (octets[i] != '%') {
                decoded.write(octets[i]);
                continue;
            }
            if (i + 2 >= octets.length) {
                throw new BadInput("cut off percent sequence in " + encoded);
            }
            decoded.write(16 * digit(octets[i + 1], encoded) + digit(octets[i + 2], encoded));
            i += 2;
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(decoded.toByteArray())).toString();
        } catch (CharacterCodingException invalid) {
            throw new BadInput("not UTF-8: " + encoded);
        }
    }

    private static boolean isUnreserved(char character) {
        return character >= 'a' && character <= 'z' || character >= 'A' && character <= 'Z'
                || character >= '0' && character <= '9' || UNRESERVED.indexOf(character) >= 0;
    }

    private static int digit(byte octet, String encoded) {
        int digit = Character.digit(octet, 16);
        if (digit < 0) {
            throw new BadInput("bad percent sequence in " + encoded);
        }
        return digit;
    }
}
