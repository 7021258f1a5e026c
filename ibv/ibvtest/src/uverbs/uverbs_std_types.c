/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_std_types.c: the methods that only destroy. */
#include <errno.h>
#include <string.h>

#include "uverbs_core.h"

int uv_destroy_none(struct uv_call *call)
{
	(void)call;
	return 0;
}

#define DESTROYS(name, id, object) \
	static const struct uv_attr_spec name[] = {UV_ATTR_IDR(id, object, UV_DESTROY, UV_MANDATORY), {0}}

DESTROYS(pd_attrs, UVERBS_ATTR_DESTROY_PD_HANDLE, UVERBS_OBJECT_PD);
DESTROYS(ah_attrs, UVERBS_ATTR_DESTROY_AH_HANDLE, UVERBS_OBJECT_AH);
DESTROYS(flow_attrs, UVERBS_ATTR_DESTROY_FLOW_HANDLE, UVERBS_OBJECT_FLOW);
DESTROYS(mr_attrs, UVERBS_ATTR_DESTROY_MR_HANDLE, UVERBS_OBJECT_MR);

const struct uv_method uv_type_methods[] = {
	{UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, "PD_DESTROY", pd_attrs, uv_destroy_none},
	{UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, "AH_DESTROY", ah_attrs, uv_destroy_none},
	{UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, "FLOW_DESTROY", flow_attrs, uv_destroy_none},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, "MR_DESTROY", mr_attrs, uv_destroy_none},
	{0}};
