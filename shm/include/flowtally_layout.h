/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_layout.h: the offsets of the mirror, as docs/mirror-format.md specifies
 * them.
 *
 * Each constant is a number of bytes from the start of the object that the prefix
 * names: FT_HDR_ the header, FT_DSC_ the descriptor of a segment, FT_SEG_ a segment,
 * FT_ENT_ an entry of the catalogue and FT_SLOT_ one of its two slots, FT_CPY_ a copy
 * of a block, FT_VAL_ a value, FT_REC_ a record, FT_HIS_ a record of the history.
 * FT_*_SIZE is the size of that object. A program that needs more than the functions
 * give uses these constants, with the memory order that flowtally_order.h describes.
 */
#ifndef FLOWTALLY_LAYOUT_H
#define FLOWTALLY_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif

enum {
	FT_HDR_VERSION = 8,
	FT_HDR_BYTE_ORDER = 12,
	FT_HDR_LENGTH = 16,
	FT_HDR_CLOCK = 20,
	FT_HDR_SEGMENT_LENGTH = 24,
	FT_HDR_INCOMPAT = 44,
	FT_HDR_SEGMENT_COUNTERS = 48,
	FT_HDR_BLOCK_LENGTH = 52,
	FT_HDR_HISTORY = 56,
	FT_HDR_FILE = 64,
	FT_HDR_CHECKSUM = 120,
	FT_HDR_FIXED = 128, /* size of the part that never changes */
	FT_HDR_GENERATION = 512,
	FT_HDR_STARTED = 520,
	FT_HDR_HEARTBEAT_PERIOD = 536,
	FT_HDR_TAKEOVERS = 552,
	FT_HDR_HEARTBEAT = 640,
	FT_HDR_STATE = 648,
	FT_HDR_CYCLE_BEGUN = 768,
	FT_HDR_CYCLE_DONE = 776,
	FT_HDR_CYCLE_DONE_AT = 784,
	FT_HDR_POLL_PERIOD = 792,
	FT_HDR_CATALOGUE_CHANGES = 896,
	FT_SWAPS_SHIFT = 48, /* of catalogue_changes: swaps of an exchange that began or ended */
	FT_HDR_COUNTERS_USED = 904,
	FT_HDR_RECORDS_USED = 908,
	FT_HDR_SEGMENTS = 912,
	FT_HDR_REFUSED = 920,
	FT_HDR_COUNTER_LIMIT = 928,
	FT_HDR_RECORD_LIMIT = 932,
	FT_HDR_HISTORY_INTENT = 1024,
	FT_HDR_HISTORY_TAIL = 1032,
	FT_HDR_REPLACED = 1280,
	FT_HDR_DEVICE_GENERATION = 1408,
	FT_HDR_DESCRIPTORS = 8192,
	FT_HEADER_SIZE = 65536,

	FT_DSC_KIND = 0,
	FT_DSC_HIGH = 4,
	FT_DSC_SIZE = 8,
	FT_KIND_BLOCKS = 1,
	FT_KIND_RECORDS = 2,

	FT_SEG_COUNTERS = 4096,
	FT_SEG_SEQS = 4194304, /* of the blocks, one in each 64 bytes */
	FT_SEG_INTENTS = 4198400,
	FT_SEG_COPIES = 4202496, /* copy 0 of all blocks, then copy 1 of all blocks */
	FT_SEG_RECORDS = 4194304,
	FT_SEG_SIZE = 4456448,
	FT_LINE_SIZE = 64,
	FT_BLK_LEN = 64,

	FT_ENT_IDENTITY = 0,
	FT_ENT_ADDED_AT = 16,
	FT_ENT_BORN = 24,
	FT_ENT_FLAGS = 32,
	FT_ENT_NAME = 64,
	FT_ENT_KIND = 128,
	FT_ENT_UNIT = 144,
	FT_ENT_LABELS = 160,
	FT_ENT_TEXT = 416,
	FT_ENT_SEQ = 704,
	FT_ENT_LIVE_STATE = 736,
	FT_ENT_LIVE_MAP = 744,
	FT_ENT_LIVE_BASE = 752,
	FT_ENT_SLOTS = 768,
	FT_ENT_SIZE = 1024,
	FT_ENT_LIVE = 2,

	FT_SLOT_FLAGS = 0,
	FT_SLOT_DISCONTINUITIES = 32,
	FT_SLOT_WIDTH = 40,
	FT_SLOT_DEVICE = 44,
	FT_SLOT_BASIS = 48,
	FT_SLOT_SOURCE = 64,
	FT_SLOT_SIZE = 128,

	FT_CPY_CYCLE = 0,
	FT_CPY_OLDEST = 8,
	FT_CPY_NEWEST = 16,
	FT_CPY_LIVE = 24,
	FT_CPY_EPOCH = 32,
	FT_CPY_VALUES = 64,
	FT_CPY_SIZE = 1600,

	FT_VAL_PACKETS = 0,
	FT_VAL_BYTES = 8,
	FT_VAL_SAMPLED_AT = 16,
	FT_VAL_SIZE = 24,

	FT_REC_SEQ = 0,
	FT_REC_SLOTS = 8,
	FT_REC_CYCLES = 56,
	FT_REC_SIZE = 64,

	FT_HIS_POSITION = 0,
	FT_HIS_INDEX = 8,
	FT_HIS_GENERATION = 12,
	FT_HIS_TIME = 16,
	FT_HIS_PACKETS = 24,
	FT_HIS_BYTES = 32,
	FT_HIS_CYCLE = 40,
	FT_HIS_KIND = 48,
	FT_HIS_SIZE = 64,

	FT_MOST_SEGMENTS = 4096,
	FT_MOST_HISTORY = 1 << 28,

	FT_EPOCH_SHIFT = 40,
	FT_EPOCH_MAX = (1 << 24) - 1
};

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_LAYOUT_H */
