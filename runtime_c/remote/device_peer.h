/* device_peer.h - values that go from one host to another: by SEND in the work of one queue and FETCH in that of the
 * other, if the hosts can reach each other. */
#ifndef LN_REMOTE_DEVICE_PEER_H
#define LN_REMOTE_DEVICE_PEER_H

#include "remote/device_state.h"

/* Tells whether the host of `d` can fetch values of the other device. It is asked once for each pair of hosts. */
bool ln_remote_reaches(ln_remote_device *d, const linnet_device *other);
/* Fills the event that stands for the work of the queue so far. */
void ln_remote_record(ln_remote_queue *queue, ln_remote_event *event);
/* Notes that the work of `queue` that comes next follows the event, or waits for the event here. */
linnet_status ln_remote_follow(ln_remote_queue *queue, const ln_remote_event *event, linnet_error *error);
/* Waits for the event that the queue follows, if it still does: for work that is not a copy from another host. */
linnet_status ln_remote_settle(ln_remote_queue *queue, linnet_error *error);
/* Copies from the queue of another host, whose event the queue follows. */
linnet_status ln_remote_fetch(ln_remote_queue *queue, const linnet_span *to, const linnet_device *of,
                              const linnet_span *from, linnet_error *error);

#endif
