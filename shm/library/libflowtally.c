/* SPDX-License-Identifier: Apache-2.0
 *
 * libflowtally.c: the functions of the headers as symbols of libflowtally.so, for
 * languages that load a library, and for programs that link to one reader.
 *
 * The headers hold the code: FT_API makes their functions external here, and every
 * other symbol stays hidden. TestLibraryExportsWhatHeadersDeclare compares the two.
 */
#define FT_API __attribute__((visibility("default")))

#include "flowtally.h"
#include "flowtally_device.h"
#include "flowtally_live.h"
#include "flowtally_wait.h"
#include "flowtally_ring.h"

/* How many bytes an object takes that the caller allocates, for languages that do not
 * compile the headers. Each object is aligned as malloc aligns. */
#define FT_SIZE_OF(type) \
	FT_API extern const size_t type##_size; \
	const size_t type##_size = sizeof(type)

FT_SIZE_OF(ft_counter);
FT_SIZE_OF(ft_cursor);
FT_SIZE_OF(ft_device);
FT_SIZE_OF(ft_device_segment);
FT_SIZE_OF(ft_entry);
FT_SIZE_OF(ft_handle);
FT_SIZE_OF(ft_list);
FT_SIZE_OF(ft_live_counter);
FT_SIZE_OF(ft_live_map);
FT_SIZE_OF(ft_named);
FT_SIZE_OF(ft_options);
FT_SIZE_OF(ft_reader);
FT_SIZE_OF(ft_record);
FT_SIZE_OF(ft_ring);
FT_SIZE_OF(ft_snapshot);
FT_SIZE_OF(ft_status);
FT_SIZE_OF(ft_value);
FT_SIZE_OF(ft_words);
