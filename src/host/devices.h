/* host/devices.h - back ends that this program can load: cuda. */
#ifndef PL_HOST_DEVICES_H
#define PL_HOST_DEVICES_H

/* To be called once, before there are threads; loads nothing yet. */
void pl_devices_offer(void);

#endif
