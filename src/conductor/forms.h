/* SPDX-License-Identifier: Apache-2.0
 *
 * forms.h -- the JSON of every call to a conductor.
 */
#ifndef YB_CONDUCTOR_FORMS_H
#define YB_CONDUCTOR_FORMS_H

#include "conductor/form.h"

extern const struct yb_form yb_form_schedule[];   /* struct yb_wire_conductor_schedule */
extern const struct yb_form yb_form_done[];       /* struct yb_wire_conductor_done */
extern const struct yb_form yb_form_move[];       /* struct yb_wire_conductor_move */
extern const struct yb_form yb_form_register[];   /* struct yb_wire_conductor_register */
extern const struct yb_form yb_form_unregister[]; /* struct yb_wire_conductor_name */
extern const struct yb_form yb_form_report[];     /* struct yb_wire_conductor_report */

/* Words of the wire's numbers, with NULL behind the last. */
extern const char *const yb_form_tiers[];
extern const char *const yb_form_kinds[];
extern const char *const yb_form_classes[];
extern const char *const yb_form_reasons[];
extern const char *const yb_form_modes[];
extern const char *const yb_form_hotspots[];
extern const char *const yb_form_outcomes[]; /* The first is `open`. */
extern const char *const yb_form_roles[];
extern const char *const yb_form_carriers[]; /* Of instructions: who carries them out. */
extern const char *const yb_form_why[];      /* Reasons of instructions. */

#endif /* YB_CONDUCTOR_FORMS_H */
