"""Secure aggregation: a server learns the sum of vectors and no summand (Bonawitz et al. 2017, Bell et al. 2020).

Vectors are int64 and added mod 2^64 like ring sums, so the sum without masks equals the plain one bit for bit. Clients
keep only a secret of 32 bytes. Everything that a client draws follows from that secret, the group and the label of the
sum, by HKDF. The same request gives the same bytes again.

=========  ==========================================  ============================================================
stage      client                                      server
=========  ==========================================  ============================================================
once       :func:`advertise` an X25519 key             sends every client its neighbours' keys: :func:`keys_for`
once       :func:`enter`: agree with each neighbour
ahead      :func:`share` two secrets of each sum       keeps them; clients that shared are in the sums
a sum      :func:`mask` the vector                     adds up; uploaded: survivor, only shared: dropped
a sum      :func:`reveal` the seed of its own stream   :func:`unmask` the total
a loss     :func:`recover` a share of who was lost     :func:`unmask` the total
=========  ==========================================  ============================================================

The same keys also carry a secret that all clients share, if they need one: :func:`hand_out` and :func:`receive`.

A sum takes two trips, mask and reveal, and a third only if a client was lost. Shares do not depend on the summands, so
the server requests the shares of a batch of sums at once.

**Masks.** Client i adds its own stream with seed b_i. For each neighbour j that shared, it also adds or subtracts a
stream with seed s_ij. The client with the smaller number adds it, the other subtracts it. The seed s_ij follows from
the initial agreement of i and j, and from the label. In the share stage, i distributes Shamir shares of b_i and of a
key u_i, each sealed for one neighbour. It sends the server its seeds s_ij, sealed with u_i. A survivor reveals its
b_i. If i was lost, an honest neighbour reveals one share: that of b_i if i uploaded, that of u_i if it did not. So the
server can remove a survivor's own stream, or the pair streams of a drop-out.

Bonawitz et al. reconstruct each survivor's b_i from shares. Here a survivor sends b_i itself, at the moment when its
neighbours would reveal their shares of it. The server learns the same b_i and, of all other secrets, fewer shares.

**Difference from the published protocol.** Bonawitz et al. share the private key of an agreement, which is used up
once a client has dropped out. Keys and agreements are then needed again for every sum, with one more trip. If j itself
revealed s_ij, j could drop out before that with its upload in the total, and nothing could remove the stream. Here u_i
opens exactly what a private key would have given: the seeds of this client in this sum. The agreement stays valid for
all other sums.

**Why the server learns only the sum**, if it follows the protocol. This holds even for the server together with the
colluding clients. The proof uses the hybrids of Bell et al. (theorem 3.10), with symmetric keys in place of the fresh
key pairs:

1. Agreements of honest pairs are indistinguishable from random (oracle Diffie-Hellman). So are the HKDF outputs of
   these and of honest secrets for this group, label and use, even if the outputs for other labels are known.
2. Messages that honest clients sealed for each other can then be replaced by sealed zeros.
3. Of a survivor's u_i and a drop-out's b_i, only the shares of colluding neighbours are known. These are fewer than
   the threshold, so they fit every secret (:mod:`raydr.privacy.masking.shamir`). The secrets of the sums of a batch are
   independent, so the shares of one sum say nothing about another. A survivor's sealed seeds are
   indistinguishable from noise, and so are the streams between two honest survivors. A drop-out that uploaded too late
   is still covered by its own stream.
4. The streams of neighbours connect the honest survivors, so their uploads are uniform except for their sum.

Steps 3 and 4 need properties of the graph, which fail with a probability below 2^-40 for every sum:
:mod:`raydr.privacy.masking.degrees`.

**What the caller must ensure.** A label serves one sum. Masks with one label under two vectors reveal their difference;
reveals with one label and two sets of survivors can reveal a vector. A resumed run needs labels that it has not used
(:class:`Label`). The sums of the same vectors over two sets of clients differ by the vectors of some clients. No
protocol can hide what follows from its output. The server must relay the clients' keys unchanged. In a simulation, a
server that invents neighbours is not stopped; in a deployed run, clients check who signed each key
(:mod:`raydr.federation.peers`).
"""

from raydr.privacy.masking.agreement import advertise, own_key
from raydr.privacy.masking.client import Member, enter, mask, recover, reveal, share
from raydr.privacy.masking.degrees import Degrees, degrees
from raydr.privacy.masking.group import Batch, Group, Label
from raydr.privacy.masking.group_secret import hand_out, receive
from raydr.privacy.masking.messages import Shared
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.privacy.masking.server import keys_for, shares_for, unmask

__all__ = [
    "Batch",
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
    "own_key",
    "receive",
    "recover",
    "reveal",
    "share",
    "shares_for",
    "unmask",
]
