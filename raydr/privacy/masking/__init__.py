"""Secure aggregation: a server learns the sum of vectors and no summand (Bonawitz et al. 2017, Bell et al. 2020).

Vectors are int64, added mod 2^64 as ring sums are, so that the sum without masks equals the plain one to the bit.
Clients remember nothing but a secret of 32 bytes and what the server tells them: all that a client ever draws follows
from that secret, the group and the label of the sum, by HKDF. Asked again, it gives the same bytes.

=========  ==========================================  ============================================================
stage      client                                      server
=========  ==========================================  ============================================================
once       :func:`advertise` an X25519 key             gives every client its neighbours' keys: :func:`keys_for`
once       :func:`enter`: agree with each neighbour
ahead      :func:`share` two secrets of this sum       keeps them; who shared is in the sum
a sum      :func:`mask` the vector                     adds up; who uploaded is a survivor, who shared alone dropped
a sum      :func:`reveal` one share of each neighbour  :func:`unmask` the total
=========  ==========================================  ============================================================

The same keys carry a secret of all clients, where they need one: :func:`hand_out` and :func:`receive`.

A sum takes two trips, mask and reveal: shares do not depend on what is summed, so many sums' can be asked for at once.

**Masks.** Client i adds a stream of its own, of seed b_i, and for each neighbour j that shared a stream of seed s_ij,
added by the one of them whose number is smaller and subtracted by the other. s_ij follows from what i and j agreed on
in the beginning, and from the label. While sharing, i hands out Shamir shares of b_i and of a key u_i, each sealed for
one neighbour; and to the server its seeds s_ij, sealed by u_i. Of each neighbour an honest client reveals one share:
that of b_i if i uploaded, that of u_i if it did not. So a survivor's own stream can be removed, or a drop-out's pairs.

**Why not as published.** Bonawitz et al. share the private key of an agreement, which is spent once a client has
dropped out: keys and agreements are then needed anew for every sum, and a trip to spread them. Were s_ij instead
revealed by j itself, j could be gone by then, its upload in the total, and nobody could remove the stream. Here u_i
opens exactly what a private key would have given, the seeds of this client in this sum, and what was agreed on stays
good for all other sums.

**Why the server learns the sum alone**, as long as it follows the protocol, whatever it and the colluding clients put
together (the hybrids of Bell et al., theorem 3.10, with symmetric keys in place of the fresh key pairs):

1. Honest pairs' agreements are as good as random (oracle Diffie-Hellman); so is what HKDF makes of them and of honest
   secrets for this group, label and use, even when what it made for other labels is known.
2. What honest clients sealed for each other can then be replaced by sealed zeros.
3. Of a survivor's u_i, and of a drop-out's b_i, only colluding neighbours' shares are known: fewer than the threshold,
   so they fit every secret (:mod:`raydr.privacy.masking.shamir`). A survivor's sealed seeds are noise, as are the
   streams between two honest survivors. A drop-out that did upload, too late, is still covered by its own stream.
4. Honest survivors are connected by neighbours' streams, so their uploads are uniform but for their sum.

Steps 3 and 4 ask something of the graph, which fails with a probability below 2^-40 for every sum:
:mod:`raydr.privacy.masking.degrees`.

**What the caller sees to.** A label serves one sum: masks of one label, under two vectors, show their difference; and
reveals of one label, with two sets of survivors, can show a vector. A run that is resumed needs other labels than those
it has used (:class:`Label`). And the sums of the same vectors over two sets of clients differ by the vectors of some:
no protocol hides what follows from its output. The server must be the one that the clients believe it to be, and relay
their keys as they are: one that makes up neighbours is not held off.
"""

from raydr.privacy.masking.agreement import advertise
from raydr.privacy.masking.client import Member, enter, mask, reveal, share
from raydr.privacy.masking.degrees import Degrees, degrees
from raydr.privacy.masking.group import Group, Label
from raydr.privacy.masking.group_secret import hand_out, receive
from raydr.privacy.masking.messages import Shared
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.privacy.masking.server import keys_for, shares_for, unmask

__all__ = [
    "Degrees",
    "Group",
    "Label",
    "MaskingError",
    "Member",
    "Shared",
    "TooFewError",
    "advertise",
    "degrees",
    "enter",
    "hand_out",
    "keys_for",
    "mask",
    "receive",
    "reveal",
    "share",
    "shares_for",
    "unmask",
]
