// What echo-fastdds uses of Fast DDS, by one name each: releases 2 and 3 differ in their headers,
// in their namespaces and in what a call returns.
#pragma once

#if __has_include(<fastdds/LibrarySettings.hpp>)

#include <EchoPubSubTypes.hpp>
#include <fastdds/LibrarySettings.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.hpp>
#include <fastdds/utils/IPLocator.hpp>

namespace tare::echo::fast {

namespace dds = eprosima::fastdds::dds;
namespace rtps = eprosima::fastdds::rtps;
using dds::Duration_t;
using rtps::IPLocator;
using rtps::Locator_t;
using rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;

inline bool succeeded(dds::ReturnCode_t code) { return code == dds::RETCODE_OK; }

inline void turn_off_intraprocess_delivery() {
  eprosima::fastdds::LibrarySettings settings;
  settings.intraprocess_delivery = eprosima::fastdds::INTRAPROCESS_OFF;
  dds::DomainParticipantFactory::get_instance()->set_library_settings(settings);
}

}  // namespace tare::echo::fast

#else

#include <EchoPubSubTypes.h>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>
#include <fastrtps/xmlparser/XMLProfileManager.h>

#include <fastdds/dds/domain/DomainParticipantFactory.hpp>

namespace tare::echo::fast {

namespace dds = eprosima::fastdds::dds;
namespace rtps = eprosima::fastdds::rtps;
using eprosima::fastrtps::Duration_t;
using eprosima::fastrtps::rtps::IPLocator;
using eprosima::fastrtps::rtps::Locator_t;
using eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
using eprosima::fastrtps::types::ReturnCode_t;

inline bool succeeded(ReturnCode_t code) { return code == ReturnCode_t::RETCODE_OK; }
inline bool succeeded(bool written) { return written; }

inline void turn_off_intraprocess_delivery() {
  eprosima::fastrtps::LibrarySettingsAttributes settings;
  settings.intraprocess_delivery = eprosima::fastrtps::INTRAPROCESS_OFF;
  eprosima::fastrtps::xmlparser::XMLProfileManager::library_settings(settings);
}

}  // namespace tare::echo::fast

#endif
