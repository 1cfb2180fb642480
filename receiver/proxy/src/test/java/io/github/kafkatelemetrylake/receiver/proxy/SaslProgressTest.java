package io.github.kafkatelemetrylake.receiver.proxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.junit.jupiter.api.Test;

class SaslProgressTest {
    private final SaslProgress sasl = new SaslProgress();

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void begin(String mechanism, String first) {
        sasl.handshake(mechanism);
        sasl.handshakeAnswered(true);
        sasl.sent(bytes(first));
    }

    @Test
    void plainEndsWithTheFirstAnswer() {
        begin("PLAIN", "\0orders\0secret");
        assertFalse(sasl.authenticated());
        sasl.answered(true, new byte[0]);
        assertTrue(sasl.authenticated());
        assertEquals("User:orders", sasl.principal());
    }

    @Test
    void scramEndsWithTheServersProof() {
        begin("SCRAM-SHA-512", "n,,n=a=2Cb=3Dc,r=nonce");
        sasl.answered(true, bytes("r=nonceserver,s=salt,i=4096"));
        assertFalse(sasl.authenticated());
        sasl.sent(bytes("c=biws,r=nonceserver,p=proof"));
        sasl.answered(true, bytes("v=verifier"));
        assertTrue(sasl.authenticated());
        assertEquals("User:a,b=c", sasl.principal());
    }

    @Test
    void aDelegationTokenHasNoNameOfItsOwner() {
        begin("SCRAM-SHA-256", "n,,n=tokenid,r=nonce,tokenauth=true");
        sasl.answered(true, bytes("v=verifier"));
        assertTrue(sasl.authenticated());
        assertNull(sasl.principal());
    }

    @Test
    void aTokenIsTakenIfTheAnswerIsEmpty() {
        String claims = Base64.getUrlEncoder().withoutPadding().encodeToString(bytes("{\"sub\":\"job-7\",\"exp\":1}"));
        String first = "n,,\u0001auth=Bearer e30." + claims + ".sig\u0001\u0001";
        begin("OAUTHBEARER", first);
        sasl.answered(true, bytes("{\"status\":\"invalid_token\"}"));  // the refusal, without an error code
        assertFalse(sasl.authenticated());
        begin("OAUTHBEARER", first);
        sasl.answered(true, new byte[0]);
        assertTrue(sasl.authenticated());
        assertEquals("User:job-7", sasl.principal());
        begin("OAUTHBEARER", "n,,\u0001auth=Bearer opaque\u0001\u0001");
        sasl.answered(true, new byte[0]);
        assertNull(sasl.principal());
    }

    @Test
    void anUnknownMechanismHasEndedWhenTheBrokerServes() {
        begin("AWS_MSK_IAM", "{\"user\":\"somebody\"}");
        sasl.answered(true, bytes("{\"version\":\"2020_10_22\"}"));
        assertFalse(sasl.authenticated());
        sasl.served();
        assertTrue(sasl.authenticated());
        assertNull(sasl.principal());
    }

    @Test
    void nobodyIsAuthenticatedByServiceAlone() {
        sasl.served();
        assertFalse(sasl.authenticated());
        sasl.handshake("AWS_MSK_IAM");
        sasl.handshakeAnswered(false);
        sasl.sent(bytes("x"));
        sasl.served();
        assertFalse(sasl.authenticated());
        sasl.handshake("PLAIN");
        sasl.handshakeAnswered(true);
        sasl.served();  // no message was sent yet
        assertFalse(sasl.authenticated());
    }

    @Test
    void aRefusalEndsWhatWas() {
        begin("PLAIN", "\0orders\0secret");
        sasl.answered(true, new byte[0]);
        begin("PLAIN", "\0other\0wrong");
        assertEquals("User:orders", sasl.principal());  // until the second exchange has ended
        sasl.answered(false, new byte[0]);
        assertFalse(sasl.authenticated());
        assertNull(sasl.principal());
    }

    @Test
    void answersWithoutARequestAreNothing() {
        sasl.answered(true, new byte[0]);
        sasl.sent(new byte[] {0});
        sasl.answered(true, bytes("v=x"));
        assertFalse(sasl.authenticated());
    }

    @Test
    void namesThatCanNotBeReadAreUnknown() {
        for (String first : new String[] {"", "\0", "a\0b", "\0\0x", "\0a\0b\0c"}) {
            begin("PLAIN", first);
            sasl.answered(true, new byte[0]);
            assertNull(sasl.principal(), first);
        }
        for (String first : new String[] {"", "n,,", "p=x,,n=a,r=b", "n=a"}) {
            begin("SCRAM-SHA-256", first);
            sasl.answered(true, bytes("v=x"));
            assertNull(sasl.principal(), first);
        }
        begin("SCRAM-SHA-256", "n,a=admin,n=user,r=x");
        sasl.answered(true, bytes("v=x"));
        assertEquals("User:user", sasl.principal());
    }
}
