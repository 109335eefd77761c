"""The format of the ring file, which a training rank writes and the node exporter reads.

Version 2. Little-endian 64-bit slots throughout. One file per rank, 4,096 bytes of header, then ``CAPACITY`` records
of sixteen slots. Slot numbers below count 8-byte slots from the start of the file (header) or of the record. A ring of
version 1 has records of the first eight slots only and zeros where the header has grown; the exporter reads both, so
that nodes can be upgraded before or after the jobs on them. Later additions to version 2 (the GPU's name, names of
parts and metrics, values behind the records, times of the GPU) are left out by an earlier exporter, and zeros where an
earlier client wrote.

The writer fills a record first and raises the header's count last, so a reader that reads the count, then records
below it, then the count again, knows which of them are complete: those with ``count < sequence + CAPACITY``.
Times are CLOCK_MONOTONIC nanoseconds, which the reader on the same machine shares; the wall clock may step.
"""

MAGIC = int.from_bytes(b"PYROMTR2", "little")
MAGIC_V1 = int.from_bytes(b"PYROMTR1", "little")
SUFFIX = ".ring"
STACKS_SUFFIX = ".stacks"
DEFAULT_FOLDER = "/dev/shm/pyrometer"  # noqa: S108  shared memory on purpose: no disk under the training loop

HEADER_BYTES = 4096
META_OFFSET = 1024
META_BYTES = 2048  # earlier clients wrote up to 3072, and no names
MOST_TEXT = 256  # characters of a text in the description; the exporter cuts longer ones
NAME_BYTES = 32  # of UTF-8, padded with zeros; written before the name's first use, and never changed
MAX_NAMED_PARTS = 8
MAX_METRICS = 16
PART_NAMES_SLOT = (META_OFFSET + META_BYTES) // 8  # of parts beyond PARTS, MAX_NAMED_PARTS times NAME_BYTES
METRIC_NAMES_SLOT = PART_NAMES_SLOT + MAX_NAMED_PARTS * NAME_BYTES // 8  # of metrics, MAX_METRICS times NAME_BYTES
RECORD_SLOTS = 16
RECORD_SLOTS_V1 = 8
RECORD_BYTES = 8 * RECORD_SLOTS
CAPACITY = 4096  # a power of two; at 4 steps a second 17 minutes, and the exporter reads every second
FILE_BYTES = HEADER_BYTES + CAPACITY * RECORD_BYTES
FIRST_RECORD_SLOT = HEADER_BYTES // 8
VALUES_OFFSET = FILE_BYTES  # here begin MAX_METRICS doubles for each record, where a job has metrics of its own
VALUES_BYTES = CAPACITY * MAX_METRICS * 8

# Header slots, written once.
MAGIC_SLOT = 0
CREATED_SLOT = 1  # monotonic ns
PID_SLOT = 2
META_LENGTH_SLOT = 3  # bytes of JSON at META_OFFSET
# Header slots that change.
STATE_SLOT = 8  # RUNNING or CLOSED
COUNT_SLOT = 9  # steps finished
STEP_STARTED_SLOT = 10  # monotonic ns; a step is under way while this is later than the end of the last record
STEP_TOTAL_SLOT = 11  # ns spent in finished steps
PART_SLOT = 12  # 1 + index into PARTS, continued by the names at PART_NAMES_SLOT, of the part under way; 0 in none
PART_STARTED_SLOT = 13  # monotonic ns at which the part under way began or, in none, the last one ended
TOKENS_EXTRA_SLOT = 14  # tokens of all finished steps, less those of as many default steps
FLOPS_EXTRA_SLOT = 15  # the same for FLOPs, as a double
PART_TOTALS_SLOT = 16  # ns per part, one slot each, in the order of PARTS
GC_PAUSES_SLOT = 24  # number of garbage collections that paused the rank for LONG_PAUSE_NS or more
GC_PAUSE_TOTAL_SLOT = 25  # ns of these pauses
GC_STEP_SLOT = 26  # 1 + number of the step in this ring that the last of them fell into
STACK_SIGNAL_SLOT = 27  # the signal on which the rank writes its stacks beside the ring; 0: none
STEPS_EXTRA_SLOT = 28  # steps beyond one per record, where a record stands for several
TICKING_SLOT = 29  # UNNAMED or NAMED where steps last from tick to tick; 0 where they are blocks
LONGEST_TICK_SLOT = 30  # ns of the longest of those steps, without the first ten and those with a named pause
EXIT_SLOT = 31  # EXIT_BYTES of UTF-8, padded with zeros: how the process ended, as far as Python knew
EXIT_BYTES = 64
EXIT_PART_SLOT = 39  # (1 + COUNT_SLOT) << 8 | 1 + index into PARTS of the part that an exception left first in the step
GPU_MODEL_SLOT = 40  # GPU_MODEL_BYTES of UTF-8, where CUDA came up after the description was written; before COUNT_SLOT
GPU_MODEL_BYTES = 64
SKIPPED_SLOT = 56  # steps tagged as skipped
TIMING_SLOT = 57  # whose times the steps have: HOST_TIME, DEVICE_TIME or LAUNCH_TIME
SETTLED_SLOT = (
    58  # with DEVICE_TIME, how many records have their final times; with LAUNCH_TIME, how many are no launches
)
NAMED_PART_TOTALS_SLOT = 48  # ns per part at PART_NAMES_SLOT, one slot each
LINKS_SLOT = 60  # LINKS_BYTES of UTF-8, padded with zeros: a line "name address" per page of the run in a tracker
LINKS_BYTES = 512
LINK_NAME_BYTES = 16
# Written at the start, and replaced where an exception or sys.exit ends the process: a signal leaves no time for it.
SUDDEN_EXIT = b"signal or os._exit"

# A GPU has a few ms of work queued, which hides shorter pauses of the process that feeds it.
LONG_PAUSE_NS = 5_000_000

RUNNING, CLOSED = 0, 1
# HOST_TIME: the host's clock, where no GPU runs behind it. LAUNCH_TIME: the host's clock, while a GPU or TPU runs
# behind it.
HOST_TIME, DEVICE_TIME, LAUNCH_TIME = 0, 1, 2
# UNNAMED: an evaluation or checkpoint between two ticks may look like a hang. NAMED: the client detects them as parts.
UNNAMED, NAMED = 1, 2

# Record slots.
SEQUENCE = 0  # 1 + number of the step in this ring
START = 1  # monotonic ns
END = 2  # monotonic ns
FLAGS = 3
TOKENS = 4  # where FLAG_TOKENS is set
FLOPS = 5  # double, where FLAG_FLOPS is set
LOSS = 6  # double, where FLAG_LOSS is set
GRAD_NORM = 7  # double, where FLAG_GRAD_NORM is set
GLOBAL_BATCH_SIZE = 8  # sequences, where FLAG_GLOBAL_BATCH_SIZE is set: it differs from the description
SEQUENCE_LENGTH = 9  # tokens, where FLAG_SEQUENCE_LENGTH is set
RECOMPUTE_NUMBER = 10  # index into RECOMPUTE, where FLAG_RECOMPUTE is set
METRICS = 15  # bits of the metrics that the step has, where FLAG_METRICS is set; their values are at VALUES_OFFSET
# Read from a trainer's log, where one line may stand for many steps.
STEPS = 11  # how many steps the record stands for, where FLAG_STEPS is set; TOKENS and FLOPS are their sums
STEP = 12  # number of the last of these steps, where FLAG_STEPS is set
REPORTED_FLOPS = 13  # double, FLOP/s per GPU as printed in the log, where FLAG_REPORTED_FLOPS is set
REPORTED_MFU = 14  # double, 0-1, as printed in the log, where FLAG_REPORTED_MFU is set
# Timed on the GPU, and written later than the rest of the record; never together with the two above.
DEVICE_START = 13  # monotonic ns, where FLAG_DEVICE is set
DEVICE_END = 14  # monotonic ns, where FLAG_DEVICE is set

PARTS = ("data", "forward", "backward", "optimizer", "wait", "checkpoint", "eval", "gc")
TAGS = ("checkpoint", "eval", "warmup", "ramp", "restart", "skipped")
TAG_BITS = {tag: 1 << bit for bit, tag in enumerate(TAGS)}
RECOMPUTE = ("none", "selective", "full")
FLAG_TOKENS, FLAG_FLOPS, FLAG_LOSS, FLAG_GRAD_NORM = 1 << 16, 1 << 17, 1 << 18, 1 << 19
FLAG_GLOBAL_BATCH_SIZE, FLAG_SEQUENCE_LENGTH, FLAG_RECOMPUTE = 1 << 20, 1 << 21, 1 << 22
FLAG_STEPS, FLAG_REPORTED_FLOPS, FLAG_REPORTED_MFU = 1 << 23, 1 << 24, 1 << 25
FLAG_METRICS = 1 << 26
FLAG_DEVICE = 1 << 27
